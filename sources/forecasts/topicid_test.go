package forecasts

import (
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestTopicRecreatedBetweenPolls recreates a topic between two polls, with at least as many records
// as before, so that offsets do not show it.
func TestTopicRecreatedBetweenPolls(t *testing.T) {
	f := func(records int32) {
		t.Helper()
		c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
		k := producer(t, c.ListenAddrs())
		for i := range int32(3) {
			produce(t, k, record("f", 0, string(Key(street(i+1, 1))), value(t, street(i+1, 1, 10))))
		}
		layer := newFakeLayer(t)
		feed, err := newTopicFeed(topicConfig("f", c.ListenAddrs()...), layer, &faults{})
		require.NoError(t, err)
		t.Cleanup(feed.close)
		_, err = settled(t, feed)
		require.NoError(t, err)
		require.Equal(t, []string{"1:1 10", "2:1 10", "3:1 10"}, layer.shown())

		recreate(t, c, "f")
		again := producer(t, c.ListenAddrs())
		for i := range records {
			produce(t, again, record("f", 0, string(Key(street(i+5, 1))), value(t, street(i+5, 1, 50))))
		}
		confirmed := layer.confirmedAt()
		_, err = settled(t, feed)
		require.ErrorIs(t, err, errRecreated)
		require.Equal(t, confirmed, layer.confirmedAt())
		require.Equal(t, []string{"1:1 10", "2:1 10", "3:1 10"}, layer.shown(), "the layer must not mix both topics")
		_, err = settled(t, feed)
		require.NoError(t, err)
		require.Equal(t, []string{"5:1 50", "6:1 50", "7:1 50", "8:1 50"}[:records], layer.shown())
	}
	f(3)
	f(4)
}

func recreate(t *testing.T, c *kfake.Cluster, topic string) {
	t.Helper()
	admin := &kafka.Transport{}
	defer admin.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: admin}
	_, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	require.NoError(t, err)
	_, err = client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
	require.NoError(t, err)
}

// TestTopicOldBroker checks that a feed reads from brokers that do not report topic IDs.
func TestTopicOldBroker(t *testing.T) {
	c := stores.StartKfake(t, kfake.SeedTopics(1, "f"))
	c.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		for _, known := range []struct{ key, last int16 }{{1, 11}, {2, 5}, {3, 9}, {18, 2}} {
			response.ApiKeys = append(response.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: known.key, MaxVersion: known.last})
		}
		return response, nil, true
	})
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if r.GetVersion() > 9 {
			return nil, errors.New("an old broker closes the connection"), true
		}
		return nil, nil, false
	})
	_, layer := run(t, topicConfig("f", c.ListenAddrs()...))
	layer.waitFor()
	k := producer(t, c.ListenAddrs())
	produce(t, k, record("f", 0, "1:1", value(t, street(1, 1, 10))))
	layer.waitFor("1:1 10")
}

// TestTopicReadInAnyOrder reads a street from several partitions, with clocks that were set back.
// The result must depend neither on the order of the partitions nor on how many records are read
// after the first layer.
func TestTopicReadInAnyOrder(t *testing.T) {
	type written struct {
		partition, at int
		speed         float64 // 0: removed
	}
	f := func(partitions [][]written, order []int, live int, want []string) {
		t.Helper()
		layer := newFakeLayer(t)
		feed, err := newTopicFeed(topicConfig("f", "127.0.0.1:1"), layer, &faults{})
		require.NoError(t, err)
		defer feed.close()
		read := make([]int, len(partitions))
		for i, p := range order {
			if i == live {
				require.NoError(t, feed.publish(nil, time.Now()))
			}
			s := partitions[p][read[p]]
			read[p]++
			l := latest{partition: s.partition, offset: int64(i), at: time.Unix(int64(s.at), 0), bytes: streetBytes, tombstone: s.speed == 0}
			require.NoError(t, feed.apply(identity{1, 1}, street(1, 1, s.speed), l))
		}
		if err := feed.publish(nil, time.Now()); err != nil {
			require.ErrorIs(t, err, watch.ErrUnchanged)
		}
		require.Equal(t, want, layer.shown(), "%v %d", order, live)
	}
	for _, order := range [][]int{{0, 0, 1, 1, 2}, {1, 1, 0, 0, 2}, {2, 1, 0, 1, 0}, {0, 1, 2, 0, 1}, {1, 2, 1, 0, 0}, {2, 0, 0, 1, 1}} {
		for live := range len(order) {
			f([][]written{{{0, 5, 1}, {0, 4, 2}}, {{1, 5, 3}, {1, 3, 4}}, {{2, 4, 5}}}, order, live, []string{"1:1 4"})
			f([][]written{{{0, 5, 1}, {0, 4, 2}}, {{1, 6, 3}, {1, 3, 0}}, {{2, 4, 5}}}, order, live, []string{})
		}
	}
}

// TestTopicMaxBytes checks that new streets beyond max_bytes are skipped and reported, and that
// removed streets make room.
func TestTopicMaxBytes(t *testing.T) {
	for _, live := range []bool{false, true} {
		layer := newFakeLayer(t)
		cfg := topicConfig("f", "127.0.0.1:1")
		cfg.MaxBytes = 3 * streetBytes
		feed, err := newTopicFeed(cfg, layer, &faults{})
		require.NoError(t, err)
		defer feed.close()
		if live {
			require.NoError(t, feed.publish(nil, time.Now()))
		}
		offset := int64(0)
		put := func(id int32, f *pb.StreetForecast) error {
			offset++
			return feed.apply(identity{id, 1}, f, latest{tombstone: f == nil, offset: offset, bytes: streetBytes})
		}
		for id := range int32(3) {
			require.NoError(t, put(id+1, street(id+1, 1, 10)))
		}
		require.ErrorContains(t, put(4, street(4, 1, 10)), "forecasts.max_bytes")
		require.NoError(t, put(2, street(2, 1, 20)), "a known street")
		require.ErrorContains(t, put(5, nil), "forecasts.max_bytes", "a tombstone of an unknown street")
		require.NoError(t, put(1, nil))
		require.NoError(t, put(3, nil))
		require.NoError(t, put(4, street(4, 1, 40)))
		require.NoError(t, put(6, street(6, 1, 60)))
		require.ErrorContains(t, put(7, street(7, 1, 10)), "forecasts.max_bytes")
		require.NoError(t, feed.publish(nil, time.Now()))
		require.Equal(t, []string{"2:1 20", "4:1 40", "6:1 60"}, layer.shown())
		require.Zero(t, feed.streets.removed)
		require.EqualValues(t, 3*streetBytes, feed.streets.bytes)
	}
}
