package validate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// itemsOf makes valid items; each of ids is detector, type, from, to.
func itemsOf(ids ...[4]int64) *batch.Items {
	it := &batch.Items{Count: len(ids)}
	it.TypeText, it.TypeEnd = []byte("abc"), []uint32{1, 2, 3}
	for _, id := range ids {
		it.Codes = fmt.Appendf(it.Codes, "D-%03d", id[0])
		it.CodeEnd = append(it.CodeEnd, uint32(len(it.Codes)))
		it.Type = append(it.Type, uint32(id[1]))
		it.From, it.To = append(it.From, id[2]), append(it.To, id[3])
		it.Value, it.Quality = append(it.Value, 1), append(it.Quality, 1)
	}
	return it
}

func detectorsOf(n int) *batch.Detectors {
	var codes []string
	for i := range n {
		codes = append(codes, fmt.Sprintf("D-%03d", i))
	}
	known, _ := batch.NewDetectors(codes)
	return known
}

// TestDuplicates compares the count of replaced items with that of a map.
func TestDuplicates(t *testing.T) {
	v := New(DefaultConfig())
	known := detectorsOf(50)
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 500 {
		spread := int64(1 + r.IntN(20))
		seen := map[[4]int64]bool{}
		want := 0
		var ids [][4]int64
		for range r.IntN(600) {
			id := [4]int64{r.Int64N(60), r.Int64N(min(3, spread)), r.Int64N(spread), 0}
			id[3] = id[2] + r.Int64N(spread)
			ids = append(ids, id)
		}
		if fields := r.Perm(4); round%2 == 0 { // in some order, with or without exceptions
			slices.SortFunc(ids, func(a, b [4]int64) int {
				return cmp.Or(cmp.Compare(a[fields[0]], b[fields[0]]), cmp.Compare(a[fields[1]], b[fields[1]]),
					cmp.Compare(a[fields[2]], b[fields[2]]), cmp.Compare(a[fields[3]], b[fields[3]]))
			})
			if round%4 == 0 {
				ids = slices.Compact(ids)
			}
			for n := len(ids); n > 0 && r.IntN(4) > 0; {
				ids[r.IntN(n)] = ids[r.IntN(n)]
			}
		}
		for _, id := range ids {
			if id[0] >= 50 {
				continue // rejected: it replaces nothing
			}
			if seen[id] {
				want++
			}
			seen[id] = true
		}
		var rejected batch.Rejections
		_, duplicates := v.Validate(itemsOf(ids...), known, time.Now().UnixNano(), false, &rejected)
		require.Equal(t, want, duplicates, "round %d", round)
	}
}

func BenchmarkDuplicates(b *testing.B) {
	const rows = 14_000
	var ids [][4]int64
	for i := range int64(rows) {
		ids = append(ids, [4]int64{i % 1000, i % 3, i / 1000 * 60e9, i/1000*60e9 + 60e9})
	}
	run := func(name string, want int) {
		it := itemsOf(ids...)
		var detectors []uint32
		for _, id := range ids {
			detectors = append(detectors, uint32(id[0]))
		}
		d := newIdentities()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := d.count(it, detectors); n != want {
					b.Fatal(n)
				}
			}
		})
	}
	run("sorted", 0)
	ids[rows/2], ids[rows-1] = ids[1], ids[2]
	run("almost_sorted", 2)
	rand.New(rand.NewPCG(2, 2)).Shuffle(rows, func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	run("shuffled", 2)
}
