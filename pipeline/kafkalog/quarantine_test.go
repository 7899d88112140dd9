package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

// produce adds records to partition 0 as another program would.
func produce(t *testing.T, brokers []string, topic string, transaction bool, records ...*kgo.Record) {
	t.Helper()
	options := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if transaction {
		options = append(options, kgo.TransactionalID("foreign"))
	}
	client, err := kgo.NewClient(options...)
	require.NoError(t, err)
	defer client.Close()
	for _, r := range records {
		r.Topic = topic
	}
	if transaction {
		require.NoError(t, client.BeginTransaction())
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	if transaction {
		require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
	}
}

// recordOf returns a frame as a record, with the header of the frame before change.
func recordOf(data []byte, change func(data []byte) []byte) *kgo.Record {
	header := headerOf(data)
	if change != nil {
		data = change(slices.Clone(data))
	}
	return &kgo.Record{Value: data, Headers: []kgo.RecordHeader{{Key: frameHeader, Value: header}}}
}

// TestRecordsThatAreNoFrames checks that each foreign or damaged record is reported once, that the
// frames between them are read as without them, and that an owner that starts later reads the same.
func TestRecordsThatAreNoFrames(t *testing.T) {
	suite := func(t *testing.T, brokers []string) {
		l := openLog(t, brokers, "records")
		now := time.Now().UnixNano()
		victim := frame(9, now+int64(time.Hour), 1, 2) // would move the clock
		flip := func(at int) func([]byte) []byte {
			return func(data []byte) []byte { data[at] ^= 1; return data }
		}
		broken := []*kgo.Record{
			{Value: []byte("foreign")},
			{Value: victim}, // without a header
			{Value: nil, Headers: recordOf(victim, nil).Headers},
			{Value: victim, Headers: []kgo.RecordHeader{{Key: frameHeader, Value: []byte{1}}}},
			recordOf(victim, func(data []byte) []byte { return data[:len(data)-3] }),
			recordOf(victim, func(data []byte) []byte { return data[:4] }),
			recordOf(victim, flip(0)), // version
			recordOf(victim, flip(3)), // received_at
			recordOf(victim, flip(len(victim)-1)),
		}
		var want []readFrame
		for i, r := range broken {
			f := readFrame{byte(i), now + int64(i), []uint32{uint32(i)}}
			appendTo(t, l, frame(f.id, f.at, f.index...))
			produce(t, brokers, "records", i == 0, r)
			if i == 0 {
				require.Eventually(t, func() bool { return offset(t, l, 0) == 3 }, time.Minute, time.Millisecond, "the transaction's marker")
			}
			want = append(want, f)
		}
		const records = 2*9 + 1 // the transaction adds a marker
		f := func(p *Partition, from, wantFrames, wantErrors int) (offsets []int64) {
			t.Helper()
			r := p.Reader(uint64(from))
			var got []readFrame
			for seq := uint64(from); seq <= records; seq++ {
				at, data, err := r.Next(t.Context(), nil)
				require.Equal(t, seq, at)
				if e, ok := errors.AsType[*durable.RecordError](err); ok {
					require.Equal(t, seq, uint64(e.Offset)+1)
					require.Equal(t, "records", e.Topic)
					offsets = append(offsets, e.Offset)
					continue
				}
				require.NoError(t, err)
				got = append(got, parse(t, data))
			}
			require.Equal(t, want[len(want)-wantFrames:], got)
			require.Len(t, offsets, wantErrors)
			_, _, ok, err := r.TryNext(nil)
			require.NoError(t, err)
			require.False(t, ok)
			return offsets
		}
		p, leave := own(t, l)
		require.Equal(t, []int64{1, 2, 4, 6, 8, 10, 12, 14, 16, 18}, f(p, 1, 9, 10))
		f(p, 1, 9, 10)
		_, _, ok, err := p.Reader(2).TryNext(nil)
		require.True(t, ok)
		require.ErrorContains(t, err, `the record at offset 1 of partition 0 of topic "records" is not an intact frame: it has no header trafficd-frame`)
		require.NoError(t, p.Save(8, nil)) // at a broken record
		leave()
		p, leave = own(t, openLog(t, brokers, "records")) // reads the window again
		f(p, 8, 6, 6)
		require.NoError(t, p.Save(records+1, nil))
		leave()
		appendTo(t, l, frame(1, now+1, 1), frame(20, now+20, 0)) // the first is a repetition
		p, _ = own(t, openLog(t, brokers, "records"))
		_, all := read(t, p, records+1, 2)
		require.Equal(t, []readFrame{{1, now + 1, []uint32{}}, {20, now + 20, []uint32{0}}}, all)
	}
	t.Run("kfake", func(t *testing.T) { suite(t, stores.StartKfake(t).ListenAddrs()) })
	t.Run("apache", func(t *testing.T) {
		suite(t, stores.StartKafka(t, stores.Broker(stores.Apache)).Brokers)
	})
}

// newer returns the frame of a batch as a newer version would write it.
func newer(id byte, receivedAt int64) *kgo.Record {
	data := frame(id, receivedAt, 0)
	data[0] = batch.FrameVersion + 1
	return recordOf(data, nil)
}

// TestFrameOfNewerVersion checks that the partition of a frame that a newer version wrote waits for
// it, with an error that says what to do, while the other partition goes on; also if an owner of
// the newer version has delivered it before.
func TestFrameOfNewerVersion(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	l := openLog(t, brokers, "upgrade", func(c *Config) { c.Partitions = 2 })
	now := time.Now().UnixNano()
	appendTo(t, l, frame(1, now, 0)) // city is in partition 0 or 1
	partition := int32(0)
	if offset(t, l, 0) == 0 {
		partition = 1
	}
	r := newer(2, now+1)
	r.Partition = partition
	produce(t, brokers, "upgrade", false, r)
	appendTo(t, l, frame(3, now+2, 0))
	produce(t, brokers, "upgrade", false, &kgo.Record{Value: []byte("foreign"), Partition: 1 - partition})

	partitions, reported := make(chan *Partition), make(chan error, 100)
	soft, stop := context.WithCancel(t.Context())
	done := make(chan error)
	consume := func(l *Log) {
		done <- l.Consume(t.Context(), soft, "sink", func(_, soft context.Context, p *Partition) error {
			partitions <- p
			<-soft.Done()
			return nil
		}, func(err error) {
			if err != nil {
				reported <- err
			}
		})
	}
	go consume(l)
	want := fmt.Sprintf(`the record at offset 1 of partition %d of topic "upgrade" has frame version 2, but this program reads version 1: upgrade this replica`, partition)
	for range 2 {
		p := <-partitions
		if p.ID != int(partition) {
			_, _, err := p.Reader(1).Next(t.Context(), nil)
			require.ErrorAs(t, err, new(*durable.RecordError))
			continue
		}
		reader := p.Reader(1)
		_, data, err := reader.Next(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, byte(1), parse(t, data).id)
		for range 3 {
			_, _, err = reader.Next(t.Context(), nil)
			require.ErrorContains(t, err, want)
			_, _, ok, err := reader.TryNext(nil)
			require.False(t, ok)
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, p.Save(3, nil), "as a newer version would")
	}
	stop()
	require.NoError(t, <-done)

	soft, stop = context.WithCancel(t.Context())
	old, err := Open(l.cfg, []string{"sink"}, window, zerolog.Nop())
	require.NoError(t, err)
	defer old.Close(t.Context())
	go consume(old)
	require.NotEqual(t, int(partition), (<-partitions).ID)
	require.ErrorContains(t, <-reported, want)
	stop()
	require.NoError(t, <-done)
}

func offset(t *testing.T, l *Log, partition int) int64 {
	t.Helper()
	_, end, err := l.bounds(t.Context(), partition)
	require.NoError(t, err)
	return end
}

var _ pipeline.Source = (*Partition)(nil)
