package clickhouse

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// monthly makes n rows, each in a month of its own, backwards from the epoch.
func monthly(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{"D", "x", time.Unix(0, epoch).UTC().AddDate(0, -i, 0).UnixNano(), epoch, 1, none}
	}
	return rows
}

func TestCut(t *testing.T) {
	same := make([]row, 300)
	for i := range same {
		same[i] = row{"D", "x", epoch + int64(i), epoch + 1000, 1, none}
	}
	f := func(rows batch.Block, maxRows, maxMonths, want int) {
		t.Helper()
		require.Equal(t, want, cut(rows, maxRows, maxMonths))
	}
	one, sixty := blockOf(batchOf(1, 1, same...)), blockOf(batchOf(2, 2, monthly(60)...))
	f(one, 1000, 50, 300)
	f(one, 300, 1, 300)
	f(one, 299, 1, 299)
	f(one, 1, 1, 1)
	f(sixty, 1000, 50, 50)
	f(sixty, 1000, 60, 60)
	f(sixty, 49, 50, 49)
	f(append(one, sixty...), 1000, 50, 350) // the first of the sixty is in the month of the others
	f(append(one, sixty...), 301, 50, 301)
	f(append(sixty.Head(40), one...), 1000, 40, 340) // back in a month of before
	f(after(sixty, 50), 1000, 50, 10)
}

// TestMonths compares the months with the calendar, at their edges and over all the years that a
// timestamp can have.
func TestMonths(t *testing.T) {
	f := func(at int64) {
		t.Helper()
		var m months
		require.True(t, m.add(at, 1))
		year, month, _ := time.Unix(0, at).UTC().Date()
		require.Equal(t, []int{year*100 + int(month)}, m.list)
		require.True(t, m.start <= at && at < m.end)
		require.True(t, m.add(m.start, 1))
		require.True(t, m.add(m.end-1, 1))
		require.False(t, m.add(m.end, 1))
	}
	f(0)
	f(epoch)
	f(time.Date(2261, 12, 31, 23, 59, 59, 999_999_999, time.UTC).UnixNano())
	f(time.Date(2024, 2, 29, 23, 59, 59, 0, time.UTC).UnixNano())
	r := rand.New(rand.NewPCG(9, 1))
	for range 1000 {
		f(r.Int64N(time.Date(2261, 12, 1, 0, 0, 0, 0, time.UTC).UnixNano()))
	}
}

func TestPlanOf(t *testing.T) {
	a, b := batchOf(1, 1_000_000, monthly(9)...), batchOf(2, 2_000_000, monthly(5)...)
	all := blockOf(a, b)
	require.Equal(t, "1/14/00000000-0001-7000-8000-000000000001.0-00000000-0002-7000-8000-000000000002.4", planOf(all))

	seen := map[string]bool{}
	for from := range 14 {
		for n := 1; n <= 14-from; n++ {
			seen[planOf(after(all, from).Head(n))] = true
		}
	}
	require.Len(t, seen, 14*15/2, "each run of rows has a name of its own")

	moved := blockOf(a, b)
	moved[0].Frame, moved[1].Frame = 900, 901 // as in a journal that was started anew
	require.Equal(t, planOf(all), planOf(moved))
}

// TestFindings compares the runs of missing rows with a plain count over them.
func TestFindings(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	for range 200 {
		var batches []*batch.Batch
		for n := range 1 + r.IntN(5) {
			batches = append(batches, batchOf(n, epoch+int64(n), random(r, 1+r.IntN(20), 2)...))
		}
		rows := after(blockOf(batches...), r.IntN(batches[0].Rows()))
		f := newFindings(rows)
		want := []rowID{}
		for _, s := range rows {
			for row := s.From; row < s.To; row++ {
				if r.IntN(3) == 0 {
					want = append(want, rowID{s.ID, s.Index[row]})
					continue
				}
				f.mark(rowID{s.ID, s.Index[row]})
				f.mark(rowID{s.ID, s.Index[row]})
			}
		}
		f.mark(rowID{batch.ID{1}, 0})                    // of another replica
		f.mark(rowID{rows[0].ID, math.MaxUint32})        // of no row
		require.Equal(t, rows.Rows()-len(want), f.count) // each counted once
		got := []rowID{}
		for _, s := range f.rest() {
			for row := s.From; row < s.To; row++ {
				got = append(got, rowID{s.ID, s.Index[row]})
			}
		}
		require.Equal(t, want, got)
	}
}

// TestReplaced: a row that a later one of its block has replaced is not sent again, but one whose
// twin is missing too is.
func TestReplaced(t *testing.T) {
	twin := row{"D", "x", epoch, epoch, 1, none}
	b := batchOf(1, epoch, twin, row{"E", "x", epoch, epoch, 1, none}, twin, row{"D", "y", epoch, epoch, 1, none})
	found := func(f *findings) (list []bool) {
		for _, index := range b.Index {
			list = append(list, f.found[rowID{b.ID, index}])
		}
		return list
	}
	f := newFindings(blockOf(b))
	f.mark(rowID{b.ID, b.Index[2]})
	f.countReplaced()
	require.Equal(t, []bool{true, false, true, false}, found(f))

	f = newFindings(blockOf(b))
	f.mark(rowID{b.ID, b.Index[1]})
	f.countReplaced()
	require.Equal(t, []bool{false, true, false, false}, found(f))
}
