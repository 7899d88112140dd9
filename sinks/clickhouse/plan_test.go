package clickhouse

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// monthlyRows returns n rows in n consecutive months, backwards from the epoch.
func monthlyRows(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{"D", "x", time.Unix(0, epoch).UTC().AddDate(0, -i, 0).UnixNano(), epoch, 1, noQuality}
	}
	return rows
}

// TestGroups checks that every row is in one group, in the order of the block, that each month is
// in one group, and that a subset of the rows is divided in the same way.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	for range 50 {
		rows := blockOf(batchOf(1, 1, randomRows(r, 1+r.IntN(3000), 1+r.IntN(300))...), batchOf(2, 2, randomRows(r, 1+r.IntN(300), 1+r.IntN(600))...))
		rows = after(rows, r.IntN(rows.Rows()))
		months := newMonths(rows)
		all, some := months.groups(rows), months.groups(after(rows, rows.Rows()/2))
		require.LessOrEqual(t, len(all), max(parallelInserts, len(months.list)/maxMonths+1))
		total, groupOf := 0, map[string]int{}
		for i, group := range all {
			total += group.Rows()
			groupMonths := map[string]bool{}
			last := rowID{}
			for _, s := range group {
				for row := s.From; row < s.To; row++ {
					month := time.Unix(0, s.Batch.From[row]).UTC().Format("200601")
					if _, known := groupOf[month]; !known {
						groupOf[month] = i
					}
					require.Equal(t, i, groupOf[month])
					groupMonths[month] = true
					require.True(t, s.ID != last.batch || s.Index[row] > last.index)
					last = rowID{s.ID, s.Index[row]}
				}
			}
			require.LessOrEqual(t, len(groupMonths), maxMonths)
		}
		require.Equal(t, rows.Rows(), total)
		for i, group := range some {
			for _, s := range group {
				for row := s.From; row < s.To; row++ {
					require.Equal(t, i, groupOf[time.Unix(0, s.Batch.From[row]).UTC().Format("200601")])
				}
			}
		}
	}
}

// TestMonths compares the months with the calendar, at their boundaries and for all possible years.
func TestMonths(t *testing.T) {
	f := func(at int64) {
		t.Helper()
		m := newMonths(nil)
		require.Zero(t, m.indexOf(at))
		year, month, _ := time.Unix(0, at).UTC().Date()
		require.Equal(t, []uint32{uint32(year*100 + int(month))}, m.list)
		require.True(t, m.start <= at && at < m.end)
		require.Zero(t, m.indexOf(m.start))
		require.Zero(t, m.indexOf(m.end-1))
		require.Equal(t, 1, m.indexOf(m.end))
		require.Zero(t, m.indexOf(at))
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
	a, b := batchOf(1, 1_000_000, monthlyRows(9)...), batchOf(2, 2_000_000, monthlyRows(5)...)
	all := blockOf(a, b)
	require.Equal(t, "2/14/00000000-0001-7000-8000-000000000001.0@1000000-00000000-0002-7000-8000-000000000002.4@2000000", planOf(all))

	seen := map[string]bool{}
	for from := range 14 {
		for n := 1; n <= 14-from; n++ {
			seen[planOf(after(all, from).Head(n))] = true
		}
	}
	require.Len(t, seen, 14*15/2, "each range of rows must have a different plan")

	moved := blockOf(a, b)
	moved[0].Frame, moved[1].Frame = 900, 901 // as in a new journal
	require.Equal(t, planOf(all), planOf(moved))

	again := *b // the same batch, accepted again after the idempotency window
	again.ReceivedAt++
	require.NotEqual(t, planOf(blockOf(b)), planOf(blockOf(&again)))
}

func TestSuspect(t *testing.T) {
	at := batch.Position{Frame: 12, Row: 345}
	token, suspect := cutPlan("2/x" + suspectBefore(at))
	require.Equal(t, "2/x", token)
	require.Equal(t, at, parseSuspect(suspect))
	token, suspect = cutPlan("2/x")
	require.Equal(t, "2/x", token)
	require.Zero(t, parseSuspect(suspect))
}

// TestFindings checks that exactly the rows that were not marked are missing.
func TestFindings(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	for range 200 {
		var batches []*batch.Batch
		for n := range 1 + r.IntN(5) {
			batches = append(batches, batchOf(n, epoch+int64(n), randomRows(r, 1+r.IntN(20), 2)...))
		}
		rows := after(blockOf(batches...), r.IntN(batches[0].Rows()))
		f := newFindings(rows)
		want, marked := []rowID{}, 0
		for _, s := range rows {
			for row := s.From; row < s.To; row++ {
				if r.IntN(3) == 0 {
					want = append(want, rowID{s.ID, s.Index[row]})
					continue
				}
				marked += f.mark(rowID{s.ID, s.Index[row]})
				marked += f.mark(rowID{s.ID, s.Index[row]})
			}
		}
		marked += f.mark(rowID{batch.ID{1}, 0})             // a row that another replica received
		marked += f.mark(rowID{rows[0].ID, math.MaxUint32}) // an unknown row
		require.Equal(t, rows.Rows()-len(want), marked)     // each row is counted once
		got := []rowID{}
		missing, tooFew := f.missingRows(1)
		require.Zero(t, tooFew)
		_, tooFew = f.missingRows(2)
		require.Equal(t, marked, tooFew)
		for _, s := range missing {
			for row := s.From; row < s.To; row++ {
				got = append(got, rowID{s.ID, s.Index[row]})
			}
		}
		require.Equal(t, want, got)
	}
}

// TestMarkReplaced checks that a row that a later row of its block has replaced counts as found,
// unless the later row is missing, too.
func TestMarkReplaced(t *testing.T) {
	duplicate := row{"D", "x", epoch, epoch, 1, noQuality}
	b := batchOf(1, epoch, duplicate, row{"E", "x", epoch, epoch, 1, noQuality}, duplicate, row{"D", "y", epoch, epoch, 1, noQuality})
	found := func(f *findings) (list []bool) {
		for _, index := range b.Index {
			list = append(list, f.replicas[rowID{b.ID, index}] == 1)
		}
		return list
	}
	f := newFindings(blockOf(b))
	f.mark(rowID{b.ID, b.Index[2]})
	f.markReplaced()
	require.Equal(t, []bool{true, false, true, false}, found(f))

	f = newFindings(blockOf(b))
	f.mark(rowID{b.ID, b.Index[1]})
	f.markReplaced()
	require.Equal(t, []bool{false, true, false, false}, found(f))
}
