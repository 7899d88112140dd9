package pipeline

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/schemas/contract"
)

// validated returns a decoded batch of n items, every second of which is rejected.
func validated(n int) (*batch.Submission, *batch.Items, *batch.Result) {
	items, r := new(batch.Items), new(batch.Result)
	items.Count = n
	items.TypeText, items.TypeEnd = []byte("speed"), []uint32{5}
	for i := range n {
		items.Codes = append(items.Codes, 'D', byte('0'+i%10))
		items.CodeEnd = append(items.CodeEnd, uint32(len(items.Codes)))
		items.Type = append(items.Type, 0)
		items.From, items.To = append(items.From, 0), append(items.To, int64(time.Minute))
		items.Value = append(items.Value, float64(i))
		items.Quality = append(items.Quality, 1)
		if i%2 == 1 {
			r.Add(i, contract.UnknownDetector, contract.FieldDetectorCode, items.Code(i))
		}
	}
	return &batch.Submission{Client: "city\x00acme"}, items, r
}

func TestTap(t *testing.T) {
	f := func(filter TapFilter, want ...int) {
		t.Helper()
		var tap Tap
		follower := tap.Follow(filter)
		defer follower.Stop()
		s, items, r := validated(8)
		tap.send(tap.sample(s, items, r, time.Unix(1, 0)))
		var got []int
		for len(follower.Items) > 0 {
			got = append(got, (<-follower.Items).Index)
		}
		require.Equal(t, want, got)
	}
	f(TapFilter{}, 1, 3, 5, 7)
	f(TapFilter{Client: "acme"}, 1, 3, 5, 7)
	f(TapFilter{Client: "other"})
	f(TapFilter{Code: "UNKNOWN_DETECTOR", Detector: "D3"}, 3)
	f(TapFilter{Code: "INVALID_VALUE"})
	f(TapFilter{Accepted: true}, 0, 2, 4, 6)
	f(TapFilter{Accepted: true, Detector: "D4"}, 4)
}

func TestTapItem(t *testing.T) {
	var tap Tap
	follower := tap.Follow(TapFilter{})
	s, items, r := validated(2)
	tap.send(tap.sample(s, items, r, time.Unix(1, 0)))
	text, err := json.Marshal(<-follower.Items)
	require.NoError(t, err)
	require.JSONEq(t, `{"time":"1970-01-01T00:00:01Z","client":"acme","code":"UNKNOWN_DETECTOR","detector":"D1","field":"detectorCode",
		"message":"detectorCode \"D1\" does not exist in product instance ","batch":"00000000-0000-0000-0000-000000000000","index":1}`, string(text))
	follower.Stop()
	tap.send(tap.sample(s, items, r, time.Unix(2, 0)))
	require.Empty(t, follower.Items)
	require.Zero(t, tap.active.Load())
}

// TestTapIsBounded checks that a follower gets at most tapRate items per second, and that a
// follower that does not read does not delay batches.
func TestTapIsBounded(t *testing.T) {
	var tap Tap
	follower := tap.Follow(TapFilter{})
	s, items, r := validated(1000)
	for range 10 {
		tap.send(tap.sample(s, items, r, time.Unix(1, 0)))
	}
	require.Len(t, follower.Items, tapRate)
	for second := range int64(10) {
		tap.send(tap.sample(s, items, r, time.Unix(2+second, 0)))
	}
	require.Len(t, follower.Items, cap(follower.Items))
	for range maxFollowers - 1 {
		require.NotNil(t, tap.Follow(TapFilter{}))
	}
	require.Nil(t, tap.Follow(TapFilter{}))
}

// TestTapShowsWhatIsStored checks that followers see no item of a batch that gets another response
// than a 207, and that such batches do not count against their rate.
func TestTapShowsWhatIsStored(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	accepted, rejected := h.intake.Tap.Follow(TapFilter{Accepted: true}), h.intake.Tap.Follow(TapFilter{})
	defer accepted.Stop()
	defer rejected.Stop()
	f := func(j Journal, wantAccepted, wantRejected int, key string, items ...string) {
		t.Helper()
		h.intake.journal, h.store.main = j, j
		_, err := h.submit(measurements(items...), key)
		require.Equal(t, wantAccepted+wantRejected == 0, err != nil, err)
		require.Len(t, accepted.Items, wantAccepted)
		require.Len(t, rejected.Items, wantRejected)
		for len(accepted.Items)+len(rejected.Items) > 0 {
			select {
			case <-accepted.Items:
			case <-rejected.Items:
			}
		}
	}
	for range 2 * tapRate {
		f(failing{h.journal, durable.ErrTooLarge, nil}, 0, 0, "", item("A", 1), item("X", 2), item("B", 3))
		f(failing{h.journal, nil, durable.ErrVoided}, 0, 0, "k", item("A", 1), item("X", 2))
	}
	f(h.journal, 2, 1, "", item("A", 1), item("X", 2), item("B", 3))
	f(h.journal, 2, 1, "k", item("A", 1), item("X", 2), item("B", 3))
	f(h.journal, 0, 1, "", item("X", 1)) // nothing to store
}

// failing is a journal that fails to queue frames, or to make them durable.
type failing struct {
	*journal.Journal
	queue, wait error
}

func (j failing) Enqueue(e *durable.Entry) error {
	if j.queue != nil {
		return j.queue
	}
	e.Open()
	e.Settle(j.wait)
	return nil
}

func TestTapFilter(t *testing.T) {
	require.NoError(t, TapFilter{}.Validate())
	require.NoError(t, TapFilter{Code: "UNKNOWN_DETECTOR"}.Validate())
	for _, code := range []string{"FOO", "RATE_LIMITED"} { // the latter is never that of an item
		require.ErrorContains(t, TapFilter{Code: code}.Validate(), code+`" must be one of BATCH_LIMIT_EXCEEDED, INVALID_TYPE, `)
	}
}

// TestTapFiltersWithoutAllocating checks that items that a follower does not want cost only a
// comparison, because a worker compares all items of all batches.
func TestTapFiltersWithoutAllocating(t *testing.T) {
	f := func(filter TapFilter) {
		t.Helper()
		var tap Tap
		tap.Follow(filter)
		s, items, r := validated(1000)
		require.Zero(t, testing.AllocsPerRun(10, func() { tap.send(tap.sample(s, items, r, time.Unix(1, 0))) }))
	}
	f(TapFilter{Detector: "E1"})
	f(TapFilter{Detector: "E1", Accepted: true})
	f(TapFilter{Code: "INVALID_VALUE"})
}
