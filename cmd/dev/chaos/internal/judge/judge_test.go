package judge

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// accepted returns items of two detectors, in the order in which they were sent.
func accepted() []ledger.Accepted {
	var list []ledger.Accepted
	for seq := range int64(6) {
		for n, detector := range []string{"A", "B"} {
			from := time.Date(2025, time.Month(1+seq%3), 1, 0, 0, int(seq), 123456789, time.UTC).UnixNano()
			list = append(list, ledger.Accepted{
				Item:  ledger.Item{Detector: detector, Seq: seq + 1, Type: "flow", From: from, To: from + 1, Value: float64(seq) / 3, Quality: 0.5},
				Batch: "0190aaaa-0000-7000-8000-00000000000" + strconv.FormatInt(seq/2, 10), Index: 2*(seq%2) + int64(n),
			})
		}
	}
	list[0].Value, list[1].Quality, list[2].Value = math.Copysign(0, -1), math.NaN(), 5e-324
	return list
}

// arrivals returns the contents of a correct store.
func arrivals(items []ledger.Accepted) []Arrival {
	var list []Arrival
	for _, a := range items {
		a.Seq = 0 // the store has no Seq
		list = append(list, Arrival{Accepted: a, Received: int64(a.Batch[len(a.Batch)-1]-'0') * 1e6})
	}
	return list
}

func TestCompare(t *testing.T) {
	f := func(missing, duplicated, reordered, altered int, edit func([]Arrival) []Arrival) {
		t.Helper()
		v := Compare("store", accepted(), edit(arrivals(accepted())))
		require.Equal(t, []int{missing, duplicated, reordered, altered}, []int{v.Missing, v.Duplicated, v.Reordered, v.Altered}, v.Examples)
		require.Len(t, v.Examples, v.Faults())
	}
	change := func(edit func(*Arrival)) func([]Arrival) []Arrival {
		return func(a []Arrival) []Arrival { edit(&a[3]); return a }
	}
	f(0, 0, 0, 0, func(a []Arrival) []Arrival { return a })
	f(1, 0, 0, 0, func(a []Arrival) []Arrival { return a[1:] })
	f(1, 0, 0, 0, func(a []Arrival) []Arrival { return a[:11] })
	f(0, 1, 0, 0, func(a []Arrival) []Arrival { return append(a, a[11]) })
	f(0, 2, 0, 0, func(a []Arrival) []Arrival { return append(a, a[3], a[3]) })
	f(0, 1, 0, 0, func(a []Arrival) []Arrival { // accepted twice, in two batches
		again := a[11]
		again.Batch = "another"
		return append(a, again)
	})
	f(0, 0, 1, 0, func(a []Arrival) []Arrival { a[0], a[2] = a[2], a[0]; return a })
	f(0, 0, 0, 0, func(a []Arrival) []Arrival { a[0], a[1] = a[1], a[0]; return a }) // different detectors: no order
	f(0, 0, 1, 0, func(a []Arrival) []Arrival { a[11].Received = 0; return a })
	f(1, 0, 1, 0, func(a []Arrival) []Arrival { a[0], a[2] = a[2], a[0]; return append(a[:4], a[5:]...) })
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Value = math.Nextafter(a.Value, 1) }))
	f(0, 0, 0, 1, func(a []Arrival) []Arrival { a[0].Value = 0; return a }) // instead of −0
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Quality = math.NaN() }))
	f(0, 0, 0, 1, change(func(a *Arrival) { a.To++ }))
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Type = "speed" }))
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Batch = "another" }))
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Index++ }))
	f(0, 0, 0, 1, change(func(a *Arrival) { a.Defect = "the key is wrong" }))
	f(1, 0, 0, 1, change(func(a *Arrival) { a.From++ })) // an unknown item and a missing one
	f(0, 0, 0, 1, func(a []Arrival) []Arrival {
		rejected := a[0]
		rejected.Detector = "unknown"
		return append(a, rejected)
	})
}

// TestFirst checks that the item with the earliest 207 of those that are missing or duplicated is
// found, whatever the order in the store.
func TestFirst(t *testing.T) {
	items := accepted()
	for i := range items {
		items[i].At = time.Unix(int64(100-i), 0)
	}
	stored := arrivals(items)
	require.Zero(t, Compare("store", items, stored).First)
	lost := Compare("store", items, append(slices.Clone(stored[2:9]), stored[10:]...))
	require.Equal(t, items[9], lost.First)
	require.Equal(t, items[11], Compare("store", items, append(stored, stored[3], stored[11])).First)
}

func TestExamplesAreBounded(t *testing.T) {
	v := Compare("store", accepted(), nil)
	require.Equal(t, 12, v.Missing)
	require.Len(t, v.Examples, maxExamples)
}

func TestAgree(t *testing.T) {
	rows, topic := arrivals(accepted()), arrivals(accepted())
	for i := range topic {
		rows[i].Received += 1_700_000_000_123_456_789
		topic[i].Received = rows[i].Received / 1e6
	}
	v := &Verdict{}
	agree(v, rows, topic)
	require.Zero(t, v.Faults())
	topic[4].Received++
	agree(v, rows, topic)
	require.Equal(t, 1, v.Altered)
}

// TestPlanted plants errors that a cluster could make in one of three stores, and checks that the
// judge finds them in that store only. Each batch has four items, two of each detector.
func TestPlanted(t *testing.T) {
	const topic, first, second = 0, 1, 2
	f := func(store, missing, duplicated, reordered, altered int, plant func([]Arrival) []Arrival) {
		t.Helper()
		stores := [][]Arrival{arrivals(accepted()), arrivals(accepted()), arrivals(accepted())}
		for i := range stores[topic] {
			stores[topic][i].Received /= 1e6
		}
		stores[store] = plant(stores[store])
		for i, v := range All(accepted(), stores[topic], stores[first:]) {
			if i != store {
				require.Zero(t, v.Missing+v.Duplicated+v.Reordered, v.Examples)
				continue
			}
			require.Equal(t, []int{missing, duplicated, reordered, altered}, []int{v.Missing, v.Duplicated, v.Reordered, v.Altered}, v.Examples)
		}
	}
	for store := range 3 {
		f(store, 0, 4, 0, 0, func(a []Arrival) []Arrival { return append(a, a[4:8]...) })      // an offset range, delivered twice
		f(store, 4, 0, 0, 0, func(a []Arrival) []Arrival { return append(a[:4:4], a[8:]...) }) // a frame that was never delivered
	}
	swap := func(a []Arrival) []Arrival { return slices.Concat(a[:4], a[8:], a[4:8]) } // two batches of a client
	f(topic, 0, 0, 4, 0, swap)
	for _, store := range []int{first, second} {
		f(store, 0, 0, 0, 0, swap) // rows have no order other than received_at
		f(store, 0, 0, 4, 0, func(a []Arrival) []Arrival {
			for i := range a[4:8] {
				a[4+i].Received, a[8+i].Received = a[8+i].Received, a[4+i].Received
			}
			return a
		})
	}
	again := func(a []Arrival) []Arrival { // a retry with another Batch-Id through another replica
		for _, item := range a[8:] {
			item.Batch = "0190aaaa-0000-7000-8000-000000000009"
			a = append(a, item)
		}
		return a
	}
	f(topic, 0, 4, 0, 0, again)
	f(second, 0, 4, 0, 0, again)
}

// TestReadArchive checks that the rows of a real ClickHouse server are read exactly, including
// duplicates and rows of another product instance.
func TestReadArchive(t *testing.T) {
	store := stores.StartClickHouse(t)
	store.Query(t, "CREATE DATABASE t ENGINE = Atomic")
	store.Query(t, `CREATE TABLE t.m (product_instance LowCardinality(String), detector_code LowCardinality(String), measure_type_code LowCardinality(String),
		timestamp_from DateTime64(9, 'UTC'), timestamp_to DateTime64(9, 'UTC'), value Float64, quality Nullable(Float64), batch_id UUID, batch_index UInt32,
		received_at DateTime64(9, 'UTC')) ENGINE = MergeTree ORDER BY (detector_code, timestamp_from)`)
	insert := func(instance string, a Arrival) {
		quality := "NULL"
		if !math.IsNaN(a.Quality) {
			quality = "reinterpretAsFloat64(toUInt64(" + strconv.FormatUint(math.Float64bits(a.Quality), 10) + "))"
		}
		at := func(ns int64) string { return "fromUnixTimestamp64Nano(" + strconv.FormatInt(ns, 10) + ", 'UTC')" }
		store.Query(t, "INSERT INTO t.m SELECT '"+instance+"', '"+a.Detector+"', '"+a.Type+"', "+at(a.From)+", "+at(a.To)+
			", reinterpretAsFloat64(toUInt64("+strconv.FormatUint(math.Float64bits(a.Value), 10)+")), "+quality+", '"+a.Batch+"', "+strconv.FormatInt(a.Index, 10)+", "+at(a.Received))
	}
	all := arrivals(accepted())
	for _, a := range all {
		insert(Instance(a.Detector), a)
	}
	rows, err := ReadArchive(t.Context(), store.TCP, "t.m")
	require.NoError(t, err)
	v := archive("archive", accepted(), rows)
	require.Zero(t, v.Faults(), v.Examples)

	insert("town", all[2])
	rows, err = ReadArchive(t.Context(), store.TCP, "t.m")
	require.NoError(t, err)
	require.Equal(t, 1, archive("archive", accepted(), rows).Duplicated)
	odd := 0
	for _, r := range rows {
		if r.Defect != "" {
			odd++
		}
	}
	require.Equal(t, 1, odd, "rows of another product instance")

	_, err = ReadArchive(t.Context(), store.TCP, "t.none")
	require.ErrorContains(t, err, "cannot read the archive")
}

func record(a Arrival) launch.Record {
	m := &trafficdv1.Measurement{
		ProductInstance: Instance(a.Detector), DetectorCode: a.Detector, MeasureTypeCode: a.Type, Value: a.Value,
		TimestampFrom: timestamppb.New(time.Unix(0, a.From)), TimestampTo: timestamppb.New(time.Unix(0, a.To)),
	}
	if !math.IsNaN(a.Quality) {
		m.Quality = &a.Quality
	}
	value, _ := proto.Marshal(m)
	return launch.Record{Record: &kgo.Record{Key: []byte(a.Detector), Value: value, Timestamp: time.UnixMilli(a.Received), Headers: []kgo.RecordHeader{
		{Key: "product-instance", Value: []byte(Instance(a.Detector))}, {Key: "batch-id", Value: []byte(a.Batch)}, {Key: "index", Value: []byte(strconv.FormatInt(a.Index, 10))},
	}}}
}

func TestParseRecords(t *testing.T) {
	f := func(altered int, edit func(*launch.Record)) {
		t.Helper()
		var records []launch.Record
		for _, a := range arrivals(accepted()) {
			records = append(records, record(a))
		}
		edit(&records[2])
		v := Compare("topic", accepted(), ParseRecords(records))
		require.Equal(t, altered, v.Altered, v.Examples)
	}
	f(0, func(*launch.Record) {})
	f(1, func(r *launch.Record) { r.Key = []byte("B") })
	f(1, func(r *launch.Record) { r.Headers = r.Headers[:2] })
	f(1, func(r *launch.Record) { r.Headers[0].Value = []byte("town") })
	f(1, func(r *launch.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: "more"}) })
	f(1, func(r *launch.Record) { r.Value = r.Value[:3] })
	f(2, func(r *launch.Record) { r.Partition = 1 }) // the next record of the detector is in partition 0 again
}
