package load

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/schemas/contract"
)

// moments returns the times around which items start. They spread the items over several partitions
// of the archive, because a block that spans partitions is committed one part at a time and can be
// interrupted between the parts. The forecaster learns from the items around the second time, and
// bases its forecasts on items of the last 12 minutes. Items around the third time start at most 6
// minutes before it, so that they are still recent enough when the forecaster reads them.
func moments(now time.Time) [3]time.Time {
	return [3]time.Time{time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -2), now}
}

var measureTypes = []string{"flow", "speed", "occupancy"}

// batch is a request body and the expected result for each item.
type batch struct {
	key    string // Idempotency-Key
	body   string
	items  []ledger.Item // indexed as in the request; zero if invalid
	faults map[int]fault // keyed by index
	first  *result       // the result in the first 207
}

// generator generates the batches of one client, for detectors that no other client uses.
type generator struct {
	rng       *rand.Rand
	client    int
	detectors int
	lastSeq   []int64 // indexed by detector
	batches   int
}

func newGenerator(rng *rand.Rand, client, detectors int) *generator {
	return &generator{rng: rng, client: client, detectors: detectors, lastSeq: make([]int64, detectors)}
}

// Detector returns the code of a client's detector.
func Detector(client, n int) string { return fmt.Sprintf(detectorFormat, client, n) }

const detectorFormat = "chaos-%02d-%03d"

// batch returns a new batch of up to maxItems items, a few of which are invalid.
func (g *generator) batch(maxItems int) *batch {
	g.batches++
	b := &batch{key: fmt.Sprintf("client-%d-batch-%d", g.client, g.batches), faults: map[int]fault{}}
	var texts []string
	for i := range 1 + g.rng.IntN(maxItems) {
		item := g.item()
		text := g.text(item)
		if g.rng.IntN(40) == 0 {
			f := badItems[g.rng.IntN(len(badItems))]
			b.faults[i], text, item = f, f.corrupt(text), ledger.Item{}
		}
		b.items, texts = append(b.items, item), append(texts, text)
	}
	b.body = string(contract.Batch(texts...))
	return b
}

func (g *generator) item() ledger.Item {
	d := g.rng.IntN(g.detectors)
	g.lastSeq[d]++
	seq := g.lastSeq[d]
	base := moments(time.Now())[seq%3]
	from := base.Add(time.Duration(seq)*20*time.Second%(48*time.Hour) + time.Duration(g.rng.Int64N(1e9)))
	length := g.rng.Int64N(3600e9)
	if seq%3 == 2 {
		from, length = base.Add(-time.Duration(g.rng.Int64N(360e9))), length/120
	}
	value, quality := g.rng.Float64()*200, g.rng.Float64()
	switch g.rng.IntN(20) { // some values are zero or negative zero, or have a very small or large magnitude
	case 0:
		value = math.Copysign(0, -1)
	case 1:
		value = 0
	case 2:
		value = (g.rng.Float64() - 0.5) * math.Pow(10, float64(g.rng.IntN(600)-300))
	}
	if g.rng.IntN(4) == 0 {
		quality = math.NaN()
	}
	return ledger.Item{
		Detector: Detector(g.client, d), Seq: seq, Type: measureTypes[g.rng.IntN(len(measureTypes))],
		From: from.UnixNano(), To: from.UnixNano() + length, Value: value, Quality: quality,
	}
}

func (g *generator) text(i ledger.Item) string {
	number := func(v float64) json.Number { return json.Number(fmt.Sprint(v)) }
	m := contract.Measurement{
		DetectorCode: i.Detector, MeasureTypeCode: i.Type, TimestampFrom: time.Unix(0, i.From), TimestampTo: time.Unix(0, i.To),
		Value: number(i.Value),
	}
	switch {
	case !math.IsNaN(i.Quality):
		m.Quality = number(i.Quality)
	case g.rng.IntN(2) == 0:
		m.Quality = "null"
	}
	return string(m.AppendJSON(nil))
}

type fault struct {
	code    string // expected error code
	field   string // expected parameter, without the prefix measurements[i]
	corrupt func(text string) string
}

func replace(old, with string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, with, 1) }
}

var badItems = []fault{
	{"UNKNOWN_DETECTOR", ".detectorCode", replace(`"chaos-`, `"unknown-`)},
	{"RESERVED_FIELD", ".linkId", replace(`{`, `{"linkId":"7",`)},
	{"MISSING_FIELD", ".value", replace(`"value":`, `"valve":`)},
	{"INVALID_TYPE", ".value", replace(`"value":`, `"value":true,"was":`)},
	{"INVALID_TYPE", "", func(string) string { return `"not an object"` }},
	{"INVALID_TIMESTAMP", ".timestampFrom", replace(`"timestampFrom":"`, `"timestampFrom":"x`)},
	{"INVALID_INTERVAL", ".timestampTo", replace(`"timestampTo":"202`, `"timestampTo":"200`)},
	{"DUPLICATE_FIELD", ".value", replace(`"value":`, `"value":1,"value":`)},
}

// result is a result and the headers of its response.
type result struct {
	contract.Result
	batchID  string
	replayed bool
}

// same reports whether r and o are equal, ignoring Idempotent-Replay.
func (r *result) same(o *result) bool {
	return r.batchID == o.batchID && r.Accepted == o.Accepted && r.Rejected == o.Rejected && slices.Equal(r.Rejections, o.Rejections)
}

// compare returns how the result differs from the expected one, or an empty string if it does not.
func (b *batch) compare(got *result) string {
	if bad := len(b.faults); got.Accepted != len(b.items)-bad || got.Rejected != bad || len(got.Rejections) != bad {
		return fmt.Sprintf("%d items, %d of them invalid: accepted %d, rejected %d, %d rejections",
			len(b.items), bad, got.Accepted, got.Rejected, len(got.Rejections))
	}
	for _, r := range got.Rejections {
		f, bad := b.faults[r.Index]
		if want := fmt.Sprintf("measurements[%d]%s", r.Index, f.field); !bad || r.Error.ErrorCode != f.code || r.Error.Parameter != want {
			return fmt.Sprintf("item %d: rejected as %s %s, want %s %s", r.Index, r.Error.ErrorCode, r.Error.Parameter, f.code, want)
		}
	}
	if got.batchID == "" {
		return "no Batch-Id"
	}
	return ""
}

// accepted returns the valid items, which must arrive in the stores.
func (b *batch) accepted() []ledger.Accepted {
	var list []ledger.Accepted
	for i, item := range b.items {
		if _, bad := b.faults[i]; !bad {
			list = append(list, ledger.Accepted{Item: item, Batch: b.first.batchID, Index: int64(i)})
		}
	}
	return list
}
