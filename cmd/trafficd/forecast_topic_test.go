package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/ops"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestForecastTopicHistories checks that daemons that have followed a topic for different times,
// with valid and invalid records, an outage of the broker and a recreated topic, finally serve the
// same bytes as an oracle that reads the topic by the rules of contract 2. A starting daemon
// serves nothing before it has read the whole topic.
func TestForecastTopicHistories(t *testing.T) {
	t.Parallel()
	const topic = "forecasts"
	k := stores.StartKafka(t, stores.Topic(topic, 3))
	writer := newTopicWriter(t, k.Brokers, topic)
	daemons := []*process{followTopic(t, k.Brokers, topic)} // from the empty topic on
	check := func() {
		t.Helper()
		want := writer.oracle()
		for i, d := range daemons {
			d.Eventually(func() bool { return proto.Equal(want, d.forecasts("")) }, "daemon %d serves the content of the topic", i)
		}
	}
	check()
	for range 4 {
		writer.write(300)
		check()
	}
	daemons = append(daemons, followTopic(t, k.Brokers, topic))
	require.NoError(t, k.Stop())
	daemons[0].Eventually(func() bool { return daemons[0].Metric("trafficd_forecasts_failing") == 1 }, "the outage is reported")
	require.NoError(t, k.Restart())
	writer.write(100)
	check()

	before := writer.recreate()
	for len(writer.records()) < before { // so that no offset shows that it was recreated
		writer.write(300)
	}
	check()
	writer.write(50)
	check()

	fresh := followTopic(t, k.Brokers, topic)
	var first *pb.StreetForecastResponse
	fresh.Eventually(func() bool { first = fresh.forecasts(""); return first != nil }, "a first layer")
	require.True(t, proto.Equal(writer.oracle(), first), "the first layer must be complete")
	daemons = append(daemons, fresh)
	for _, query := range []string{"", "?horizon=0", "?horizon=60"} {
		for _, accept := range []string{"application/x-protobuf", "application/json"} {
			tags := map[string]bool{}
			for _, d := range daemons {
				response, _ := d.layer("map", query, "Accept", accept, "Accept-Encoding", "identity")
				tags[response.Header.Get("Etag")] = true
			}
			require.Len(t, tags, 1, "%s %s", accept, query)
		}
	}
	_, body := fresh.layer("map", "", "Accept", "application/json", "Accept-Encoding", "identity")
	asJSON := new(pb.StreetForecastResponse)
	require.NoError(t, protojson.Unmarshal(body, asJSON))
	require.True(t, proto.Equal(writer.oracle(), asJSON))
}

// TestDeadForecastProducer checks that a daemon with layers.stale: refuse does not serve the layer,
// and reports why, if the records of the topic are two hours old and all their periods have ended,
// although every poll of the topic succeeds.
func TestDeadForecastProducer(t *testing.T) {
	t.Parallel()
	const topic = "forecasts"
	k := stores.StartKafka(t, stores.Topic(topic, 1))
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	require.NoError(t, err)
	defer c.Close()
	start := time.Now().UTC().Add(-2 * time.Hour)
	value, err := proto.Marshal(&pb.StreetForecast{Street: 1, Fromnode: 1, Forecast: []*pb.ForecastPeriod{{
		Start: start.Format(time.RFC3339), End: start.Add(15 * time.Minute).Format(time.RFC3339), Speed: 50,
	}}})
	require.NoError(t, err)
	require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("1:1"), Value: value, Timestamp: start}).FirstErr())
	d := newProcess(t, "layers.stale=refuse", "forecasts.feed=kafka", "forecasts.kafka.brokers="+k.Brokers[0], "forecasts.kafka.topic="+topic)
	d.keys(keyEntry("map", "forecast", "UTC"))
	d.start()
	d.Eventually(func() bool { return d.Metric("trafficd_layers_builds_total") > 0 }, "a first layer")
	response, body := d.layer("map", "")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Contains(t, string(body), "out of date")
	var r ops.Readiness
	d.Eventually(func() bool { _, r = d.Readiness(); return d.Metric("trafficd_forecasts_failing") == 0 }, "the topic was read")
	_, r = d.Readiness()
	require.Equal(t, ops.NotReady, r.Components["forecasts"].State)
	require.Regexp(t, `^no street has a current or future forecast; the newest data is 2h\d+m0s old: the layer is no longer served \(layers.stale\); see the runbook, TrafficdForecastsStale$`, r.Components["forecasts"].Reasons[0])
	require.Greater(t, d.Metric("trafficd_layers_age_seconds"), 7000.0)
	require.EqualValues(t, 1, d.Metric("trafficd_layers_stale"))
}

// followTopic starts a daemon whose forecasts come from a topic.
func followTopic(t *testing.T, brokers []string, topic string) *process {
	t.Helper()
	d := newProcess(t)
	d.keys(keyEntry("map", "forecast", "Europe/Copenhagen"))
	d.Set("forecasts.feed=kafka", "forecasts.kafka.brokers="+brokers[0], "forecasts.kafka.topic="+topic)
	return d.start()
}

// forecasts returns the layer, or nil if there is none yet.
func (d *process) forecasts(query string) *pb.StreetForecastResponse {
	d.t.Helper()
	response, err := launch.GetLayer(d.t.Context(), http.DefaultClient, "http://"+d.API, "map", query)
	if err != nil || response.Status != http.StatusOK {
		return nil
	}
	got, err := response.Layer()
	require.NoError(d.t, err)
	return got
}

// topicWriter writes valid and invalid records.
type topicWriter struct {
	t       *testing.T
	brokers []string
	topic   string
	random  *rand.Rand
	hour    time.Time // start of the forecasts, fixed while the minute changes
}

func newTopicWriter(t *testing.T, brokers []string, topic string) *topicWriter {
	return &topicWriter{t, brokers, topic, rand.New(rand.NewPCG(1, 2)), time.Now().UTC().Truncate(time.Hour)}
}

func (w *topicWriter) client() *kgo.Client {
	c, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<10))
	require.NoError(w.t, err)
	return c
}

func (w *topicWriter) write(records int) {
	w.t.Helper()
	c := w.client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	all := make([]*kgo.Record, records)
	for i := range all {
		all[i] = w.record()
	}
	require.NoError(w.t, c.ProduceSync(ctx, all...).FirstErr())
}

// record returns a record about one of 60 streets, in any partition, with an unreliable timestamp.
func (w *topicWriter) record() *kgo.Record {
	f := w.street()
	r := &kgo.Record{
		Topic: w.topic, Partition: w.random.Int32N(3), Key: fmt.Appendf(nil, "%d:%d", f.Street, f.Fromnode),
		Timestamp: time.UnixMilli(time.Now().UnixMilli() - w.random.Int64N(5000)),
	}
	var err error
	r.Value, err = proto.Marshal(f)
	require.NoError(w.t, err)
	switch w.random.IntN(16) {
	case 0, 1:
		r.Value = nil
	case 2:
		r.Value = []byte{}
	case 3:
		r.Value = r.Value[:len(r.Value)-1]
	case 4:
		r.Key = []byte("60:1")
	case 5:
		r.Key = append(r.Key, '0', ':')
	case 6:
		r.Key = nil
	}
	return r
}

func (w *topicWriter) street() *pb.StreetForecast {
	f := &pb.StreetForecast{Street: 1 + w.random.Int32N(30), Fromnode: w.random.Int32N(2), OpenLRcode: "CwOiYCUMnQkJAP+/ABQBCg=="}
	for i := range 1 + w.random.IntN(3) {
		start := w.hour.Add(time.Duration(i) * 4 * time.Hour)
		f.Forecast = append(f.Forecast, &pb.ForecastPeriod{
			Start: start.Format(time.RFC3339), End: start.Add(4 * time.Hour).Format(time.RFC3339), SpeedValid: proto.Bool(true), Speed: float64(w.random.IntN(200)),
		})
	}
	if w.random.IntN(8) == 0 {
		f.Forecast[0].Speed = math.NaN()
	}
	return f
}

func (w *topicWriter) records() []stores.Record {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	records, err := stores.ReadTopic(ctx, w.brokers, w.topic)
	require.NoError(w.t, err)
	return records
}

// recreate deletes the topic and immediately creates another one with the same name. It returns the
// number of records in the old one.
func (w *topicWriter) recreate() (before int) {
	w.t.Helper()
	before = len(w.records())
	c := w.client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	remove := kmsg.NewDeleteTopicsRequest()
	remove.TopicNames = []string{w.topic}
	named := kmsg.NewDeleteTopicsRequestTopic()
	named.Topic = &w.topic
	remove.Topics = append(remove.Topics, named)
	_, err := remove.RequestWith(ctx, c)
	require.NoError(w.t, err)
	create := kmsg.NewCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = w.topic, 3, 1
	create.Topics = append(create.Topics, topic)
	require.Eventually(w.t, func() bool {
		response, err := create.RequestWith(ctx, c)
		return err == nil && response.Topics[0].ErrorCode == 0
	}, time.Minute, 10*time.Millisecond)
	return before
}

// oracle returns the layer that the topic defines. The forecast of a street in a partition is its
// last valid record, with the latest timestamp of the street in that partition. Among partitions,
// the latest timestamp wins, then the highest partition number.
func (w *topicWriter) oracle() *pb.StreetForecastResponse {
	w.t.Helper()
	type latest struct {
		at        time.Time
		partition int32
		value     *pb.StreetForecast
	}
	byKey := map[string]map[int32]latest{}
	for _, r := range w.records() {
		f, valid := parsed(r)
		if !valid {
			continue
		}
		if byKey[string(r.Key)] == nil {
			byKey[string(r.Key)] = map[int32]latest{}
		}
		before := byKey[string(r.Key)][r.Partition]
		if r.Timestamp.Before(before.at) {
			r.Timestamp = before.at
		}
		byKey[string(r.Key)][r.Partition] = latest{r.Timestamp, r.Partition, f}
	}
	all := new(pb.StreetForecastResponse)
	for _, byPartition := range byKey {
		last := slices.MaxFunc(slices.Collect(maps.Values(byPartition)), func(a, b latest) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.partition, b.partition))
		})
		if last.value != nil {
			all.StreetForecast = append(all.StreetForecast, last.value)
		}
	}
	slices.SortFunc(all.StreetForecast, func(a, b *pb.StreetForecast) int {
		return cmp.Or(cmp.Compare(a.Street, b.Street), cmp.Compare(a.Fromnode, b.Fromnode))
	})
	return all
}

// parsed returns the forecast of a record as the layer shows it, or nil for a tombstone. valid
// reports whether the record is valid.
func parsed(r stores.Record) (f *pb.StreetForecast, valid bool) {
	var street, node int32
	if n, err := fmt.Sscanf(string(r.Key)+"!", "%d:%d!", &street, &node); n != 2 || err != nil {
		return nil, false
	}
	if r.Value == nil {
		return nil, true
	}
	f = new(pb.StreetForecast)
	if proto.Unmarshal(r.Value, f) != nil || f.Street != street || f.Fromnode != node {
		return nil, false
	}
	f.Forecast = slices.DeleteFunc(f.Forecast, func(p *pb.ForecastPeriod) bool { return math.IsNaN(p.Speed) })
	for _, p := range f.Forecast {
		p.Timezone = "Europe/Copenhagen"
	}
	return f, len(f.Forecast) > 0
}
