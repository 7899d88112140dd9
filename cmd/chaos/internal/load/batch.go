package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
)

// months spread the items over partitions of the archive: a block over several
// of them is put in place part by part, and can be cut off in between.
var months = []time.Time{
	time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC),
}

var measureTypes = []string{"flow", "speed", "occupancy"}

// batch is one body and what has to come of each of its items.
type batch struct {
	key    string // Idempotency-Key
	body   string
	items  []ledger.Item // by index; those of faults are zero
	faults map[int]fault // by index
}

// maker makes the batches of one client. All detectors are its own.
type maker struct {
	rng       *rand.Rand
	client    int
	detectors int
	next      []int64 // sequence of each detector
	batches   int
}

func newMaker(rng *rand.Rand, client, detectors int) *maker {
	return &maker{rng: rng, client: client, detectors: detectors, next: make([]int64, detectors)}
}

// detector is the code of a client's detector, as it stands in the registry.
func detector(client, n int) string { return fmt.Sprintf("chaos-%02d-%03d", client, n) }

// batch makes a batch of up to most items, a few of which are bad.
func (m *maker) batch(most int) *batch {
	m.batches++
	b := &batch{key: fmt.Sprintf("client-%d-batch-%d", m.client, m.batches), faults: map[int]fault{}}
	var texts []string
	for i := range 1 + m.rng.IntN(most) {
		item := m.item()
		text := m.text(item)
		if m.rng.IntN(40) == 0 {
			f := badItems[m.rng.IntN(len(badItems))]
			b.faults[i], text, item = f, f.spoil(text, item), ledger.Item{}
		}
		b.items, texts = append(b.items, item), append(texts, text)
	}
	b.body = `{"measurements":[` + strings.Join(texts, ",") + `]}`
	return b
}

func (m *maker) item() ledger.Item {
	d := m.rng.IntN(m.detectors)
	m.next[d]++
	seq := m.next[d]
	from := months[seq%int64(len(months))].Add(time.Duration(seq)*time.Second + time.Duration(m.rng.Int64N(1e9)))
	return ledger.Item{
		Detector: detector(m.client, d), Seq: seq, Type: measureTypes[m.rng.IntN(len(measureTypes))],
		From: from.UnixNano(), To: from.UnixNano() + m.rng.Int64N(3600e9),
		Value: m.value(), Quality: m.quality(),
	}
}

// value reaches over the whole range of a float64, both zeros included.
func (m *maker) value() float64 {
	switch m.rng.IntN(20) {
	case 0:
		return math.Copysign(0, -1)
	case 1:
		return 0
	case 2:
		return (m.rng.Float64() - 0.5) * math.Pow(10, float64(m.rng.IntN(600)-300))
	}
	return m.rng.Float64() * 200
}

func (m *maker) quality() float64 {
	if m.rng.IntN(4) == 0 {
		return math.NaN()
	}
	return m.rng.Float64()
}

// text is the item in JSON.
func (m *maker) text(i ledger.Item) string {
	t := fmt.Sprintf(`{"detectorCode":%q,"measureTypeCode":%q,"timestampFrom":%q,"timestampTo":%q,"value":%s`,
		i.Detector, i.Type, time.Unix(0, i.From).UTC().Format(time.RFC3339Nano), time.Unix(0, i.To).UTC().Format(time.RFC3339Nano), float(i.Value))
	if !math.IsNaN(i.Quality) {
		return t + `,"quality":` + float(i.Quality) + `}`
	}
	if m.rng.IntN(2) == 0 {
		return t + `,"quality":null}`
	}
	return t + `}`
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// fault is what is wrong with an item, and what the answer has to say.
type fault struct {
	code  string
	field string // after measurements[i]
	spoil func(text string, item ledger.Item) string
}

func replace(old, with string) func(string, ledger.Item) string {
	return func(text string, _ ledger.Item) string { return strings.Replace(text, old, with, 1) }
}

var badItems = []fault{
	{"UNKNOWN_DETECTOR", ".detectorCode", replace(`"chaos-`, `"nobody-`)},
	{"RESERVED_FIELD", ".linkId", replace(`{`, `{"linkId":"7",`)},
	{"MISSING_FIELD", ".value", replace(`"value":`, `"valve":`)},
	{"INVALID_TYPE", ".value", replace(`"value":`, `"value":true,"was":`)},
	{"INVALID_TYPE", "", func(string, ledger.Item) string { return `"no object"` }},
	{"INVALID_TIMESTAMP", ".timestampFrom", replace(`"timestampFrom":"2025-0`, `"timestampFrom":"2025-9`)},
	{"INVALID_INTERVAL", ".timestampTo", replace(`"timestampTo":"2025-`, `"timestampTo":"2024-`)},
	{"DUPLICATE_FIELD", ".value", replace(`"value":`, `"value":1,"value":`)},
}
