package kafkalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/durable"
)

const window = time.Hour

// frame returns the frame of a batch of one product instance with these rows.
func frame(id byte, receivedAt int64, indexes ...uint32) []byte {
	b := &batch.Batch{ID: batch.ID{id}, ProductInstance: "city", ReceivedAt: receivedAt, Index: indexes}
	b.TypeText, b.TypeEnd = []byte("flow"), []uint32{4}
	for range indexes {
		b.Codes = append(b.Codes, 'D')
		b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
		b.Type, b.From, b.To = append(b.Type, 0), append(b.From, 1), append(b.To, 2)
		b.Value, b.Quality = append(b.Value, 1), append(b.Quality, 1)
	}
	return batch.AppendFrame(nil, b, nil)
}

// readFrame is a frame as a reader returns it.
type readFrame struct {
	id    byte
	at    int64
	index []uint32
}

func parse(t *testing.T, data []byte) readFrame {
	t.Helper()
	var b batch.Batch
	require.NoError(t, batch.DecodeFrame(data, &b, nil))
	return readFrame{b.ID[0], b.ReceivedAt, append([]uint32{}, b.Index...)}
}

func appendTo(t *testing.T, j pipeline.Journal, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		e := &durable.Entry{Data: f}
		require.Eventually(t, func() bool { return j.Enqueue(e) == nil }, time.Minute, 10*time.Millisecond, "%v", j.Ready(""))
		require.NoError(t, e.Wait())
	}
}

func testConfig(brokers []string, topic string) Config {
	cfg := DefaultConfig()
	cfg.Brokers, cfg.Topic, cfg.Partitions = brokers, topic, 1
	cfg.DialTimeout, cfg.MetadataMaxAge = time.Minute, time.Minute // the latter is also the time for a metadata request
	return cfg
}

// openLog opens a log with one partition, as one process would.
func openLog(t testing.TB, brokers []string, topic string, change ...func(*Config)) *Log {
	t.Helper()
	cfg := testConfig(brokers, topic)
	for _, f := range change {
		f(&cfg)
	}
	l, err := Open(cfg, []string{"sink"}, window, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// own joins the group and returns the partition, and a function that leaves.
func own(t *testing.T, l *Log) (p *Partition, leave func()) {
	t.Helper()
	soft, stop := context.WithCancel(context.Background())
	owned, done := make(chan *Partition, 1), make(chan struct{})
	go func() {
		defer close(done)
		require.NoError(t, l.Consume(context.Background(), soft, "sink", func(_, soft context.Context, p *Partition) error {
			owned <- p
			<-soft.Done()
			return nil
		}, func(err error) {
			if err != nil {
				t.Log(err)
			}
		}))
	}()
	leave = func() { stop(); <-done }
	t.Cleanup(leave)
	select {
	case p = <-owned:
	case <-time.After(time.Minute):
		t.Fatal("got no partition within a minute")
	}
	return p, leave
}

// read returns the next n frames.
func read(t *testing.T, s pipeline.Source, from uint64, n int) (seqs []uint64, all []readFrame) {
	t.Helper()
	r := s.Reader(from)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range n {
		seq, data, err := r.Next(ctx, nil)
		require.NoError(t, err)
		seqs, all = append(seqs, seq), append(all, parse(t, data))
	}
	_, _, more, err := r.TryNext(nil)
	require.NoError(t, err)
	require.False(t, more)
	return seqs, all
}

// TestSources runs the same suite on the journal on disk and on the log in Kafka.
func TestSources(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	suite := func(j pipeline.Journal, open func() (s pipeline.Source, leave func())) {
		s, leave := open()
		start, state := s.Cursor().Load()
		require.Nil(t, state)
		require.EqualValues(t, 1, start)
		appendTo(t, j, frame(1, 100, 0, 1), frame(2, 200), frame(3, 300, 7))

		seqs, all := read(t, s, start, 3)
		require.Equal(t, []uint64{1, 2, 3}, seqs)
		require.Equal(t, []readFrame{{1, 100, []uint32{0, 1}}, {2, 200, []uint32{}}, {3, 300, []uint32{7}}}, all)
		oldest, next := s.Bounds()
		require.EqualValues(t, []uint64{1, 4}, []uint64{oldest, next})
		seqs, _ = read(t, s, 2, 2)
		require.Equal(t, []uint64{2, 3}, seqs, "a reader starts anywhere")

		require.NoError(t, s.Confirm())
		require.NoError(t, s.Cursor().Save(2, []byte("state")))
		require.NoError(t, s.Confirm())
		leave()
		require.ErrorIs(t, s.Cursor().Save(3, nil), durable.ErrClosed)
		_, _, err := s.Reader(2).Next(t.Context(), nil)
		require.ErrorIs(t, err, durable.ErrClosed)

		s, _ = open()
		at, state := s.Cursor().Load()
		require.EqualValues(t, 2, at)
		require.Equal(t, "state", string(state))
		seqs, again := read(t, s, at, 2)
		require.Equal(t, []uint64{2, 3}, seqs)
		require.Equal(t, all[1:], again)
	}
	t.Run("local", func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.Dir, cfg.MinFreeBytes = t.TempDir(), 0
		var j *journal.Journal
		opened := &reopened{}
		open := func() (pipeline.Source, func()) {
			var err error
			j, err = journal.Open(cfg, []string{"sink"})
			require.NoError(t, err)
			opened.Journal = j
			return pipeline.Local(j, "sink"), func() { require.NoError(t, j.Close()) }
		}
		suite(opened, open)
		require.NoError(t, j.Close())
	})
	t.Run("kafka", func(t *testing.T) {
		l := openLog(t, brokers, "suite")
		suite(l, func() (pipeline.Source, func()) { return own(t, l) })
	})
}

// TestWaitEndsAtDeadline waits for frames that do not come: reaching the deadline is no failure.
func TestWaitEndsAtDeadline(t *testing.T) {
	p, _ := own(t, openLog(t, stores.StartKfake(t).ListenAddrs(), "log"))
	r := p.Reader(1)
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, _, err := r.Next(ctx, nil)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// TestHangingLeaderFails checks that a leader that does not respond is a failure, not a wait
// without new frames.
func TestHangingLeaderFails(t *testing.T) {
	c := stores.StartKfake(t)
	p, _ := own(t, openLog(t, c.ListenAddrs(), "log", func(c *Config) { c.RequestTimeout = 100 * time.Millisecond }))
	respond := make(chan struct{})
	defer close(respond)
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-respond })
		return nil, nil, false
	})
	r := p.Reader(1)
	for range 20 {
		_, _, err := r.Next(t.Context(), nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}

// TestBrokenBroker writes and reads although the first of the configured brokers accepts
// connections but never responds, or closes them.
func TestBrokenBroker(t *testing.T) {
	f := func(t *testing.T, closes bool) {
		broken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer broken.Close()
		if closes {
			go func() {
				for {
					c, err := broken.Accept()
					if err != nil {
						return
					}
					_ = c.Close()
				}
			}()
		}
		brokers := append([]string{broken.Addr().String()}, stores.StartKfake(t).ListenAddrs()...)
		// What kafka-go caches after a failure must not matter.
		l := openLog(t, brokers, "broken", func(c *Config) { c.DialTimeout, c.MetadataMaxAge = time.Second, time.Hour })
		p, leave := own(t, l)
		appendTo(t, l, frame(1, 100), frame(2, 200))
		seqs, _ := read(t, p, 1, 2)
		require.Equal(t, []uint64{1, 2}, seqs)
		require.NoError(t, p.Save(3, nil))
		leave()
	}
	t.Run("hangs", func(t *testing.T) { f(t, false) })
	t.Run("closes", func(t *testing.T) { f(t, true) })
}

// TestCloseWhileChecking checks that a check of the topic that Close interrupts is not logged.
func TestCloseWhileChecking(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hanging.Close()
	cfg := DefaultConfig()
	cfg.Brokers = []string{hanging.Addr().String()}
	var logged bytes.Buffer
	l, err := Open(cfg, nil, window, zerolog.New(&logged))
	require.NoError(t, err)
	c, err := hanging.Accept()
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, l.Close(t.Context()))
	require.Empty(t, logged.String())
}

// TestProbesDoNotWait checks that a partition recovers while the leader of another one does not
// respond.
func TestProbesDoNotWait(t *testing.T) {
	c := stores.StartKfake(t)
	l := openLog(t, c.ListenAddrs(), "probes", func(c *Config) {
		c.Partitions, c.RequestTimeout = 2, 5*time.Minute
	})
	require.Eventually(t, func() bool { return l.Ready("") == nil }, time.Minute, 10*time.Millisecond)
	respond := make(chan struct{})
	defer close(respond)
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Partition == 0 {
			c.SleepControl(func() { <-respond })
		}
		return nil, nil, false
	})
	l.mu.Lock()
	for _, w := range l.writers {
		w.report(errors.New("no leader"))
	}
	l.mu.Unlock()
	require.Eventually(t, func() bool { return l.Ready("") == nil }, time.Minute, 10*time.Millisecond)
}

// reopened is a journal that is replaced when its directory is opened again.
type reopened struct{ pipeline.Journal }

// TestSecondFrameOfABatch checks that rows that are in the log twice are read once by every owner,
// wherever its cursor is.
func TestSecondFrameOfABatch(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	hour := int64(window)
	now := time.Now().UnixNano()
	l := openLog(t, brokers, "doubles")
	appendTo(t, l,
		frame(1, now, 0, 1, 2),
		frame(2, now+5, 0),
		frame(1, now+3, 0, 1, 2), // from a replica whose clock is behind
		frame(1, now+9, 1, 2, 3), // from a replica with another registry
		frame(2, now+hour+5, 0),  // just in the window
		frame(2, now+3*hour, 0),  // later
	)
	want := []readFrame{
		{1, now, []uint32{0, 1, 2}},
		{2, now + 5, []uint32{0}},
		{1, now + 3, []uint32{}},
		{1, now + 9, []uint32{3}},
		{2, now + hour + 5, []uint32{}},
		{2, now + 3*hour, []uint32{0}},
	}
	p, leave := own(t, l)
	_, all := read(t, p, 1, len(want))
	require.Equal(t, want, all)
	_, all = read(t, p, 2, len(want)-1)
	require.Equal(t, want[1:], all, "a second reader of the same owner")
	for n := uint64(2); n <= uint64(len(want)); n++ {
		require.NoError(t, p.Save(n, nil))
		leave()
		p, leave = own(t, openLog(t, brokers, "doubles")) // another process, which starts without state
		_, all = read(t, p, n, len(want)-int(n)+1)
		require.Equal(t, want[n-1:], all, "from frame %d on", n)
	}
}

// TestReceivedAtFollowsTheLog checks that received_at increases along the log and is the same for
// every owner.
func TestReceivedAtFollowsTheLog(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	l := openLog(t, brokers, "clocks")
	now := time.Now().UnixNano()
	appendTo(t, l, frame(1, now, 0), frame(2, now-1e9, 0), frame(3, now+1, 0), frame(4, now+1e9, 0), frame(5, now+1, 0))
	want := []int64{now, now + 1, now + 2, now + 1e9, now + 1e9 + 1}
	p, leave := own(t, l)
	for n := uint64(1); n <= 5; n++ {
		_, all := read(t, p, n, 6-int(n))
		for i, g := range all {
			require.Equal(t, want[int(n)-1+i], g.at)
		}
		require.NoError(t, p.Save(n+1, nil))
		leave()
		p, leave = own(t, openLog(t, brokers, "clocks"))
	}
}

// TestFormerOwner checks that an owner that was replaced can neither move the cursor nor confirm
// that it owns it.
func TestFormerOwner(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	l := openLog(t, brokers, "owners")
	appendTo(t, l, frame(1, 1, 0), frame(2, 2, 0))
	former, leave := own(t, l)
	require.NoError(t, former.Save(1, []byte("plan")))
	leave()
	owner, _ := own(t, openLog(t, brokers, "owners"))
	_, state := owner.Load()
	require.Equal(t, "plan", string(state))
	require.NoError(t, owner.Save(2, []byte("next")))

	former.committed, former.hard = time.Time{}, t.Context() // it was paused for minutes
	err := former.Confirm()
	require.ErrorIs(t, err, durable.ErrClosed)
	require.True(t, errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.IllegalGeneration), "got %v, want a rejection by the coordinator", err)
	require.ErrorIs(t, former.Save(1, []byte("late")), durable.ErrClosed)
	committed, err := l.committed(t.Context(), "sink")
	require.NoError(t, err)
	_, state, err = decodeCursor(committed[0].Metadata)
	require.NoError(t, err)
	require.Equal(t, "1 next", fmt.Sprint(committed[0].CommittedOffset, " ", string(state)))
}

// TestUnknownPartitions checks that commits of partitions that cannot exist are an error.
func TestUnknownPartitions(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "unknown")
	for _, partition := range []int32{-1, math.MinInt32, math.MaxInt32} {
		cluster.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			committed := kmsg.NewOffsetFetchResponseTopicPartition()
			committed.Partition = partition
			response := r.ResponseKind().(*kmsg.OffsetFetchResponse)
			response.Topics = []kmsg.OffsetFetchResponseTopic{{Topic: "unknown", Partitions: []kmsg.OffsetFetchResponseTopicPartition{committed}}}
			return response, nil, true
		})
		_, err := l.committed(t.Context(), "sink")
		require.ErrorContains(t, err, "does not contain all partitions")
	}
}

// TestSlowAttemptKeepsMembership checks that a replica whose attempt does not end stays in the
// group when another replica joins, also with a short session: otherwise each of them would in turn
// take over the other's partition and interrupt its attempt.
func TestSlowAttemptKeepsMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const session = 2 * time.Second
		broker := stores.StartKfakeInMemory(t, kfake.SeedTopics(1, "slow"), kfake.GroupMinSessionTimeout(session))
		errs := make(chan error, 100)
		join := func() (joined, runs chan struct{}) {
			cfg := testConfig([]string{"broker:9092"}, "slow")
			cfg.sessionTimeout, cfg.MaxFrameBytes = session, 64<<10
			l, err := newLog(cfg, []string{"sink"}, window, zerolog.New(zerolog.NewTestWriter(t)))
			require.NoError(t, err)
			l.transport.Dial = broker
			l.start()
			t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
			joined, runs = make(chan struct{}, 100), make(chan struct{}, 100)
			soft, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() {
				done <- l.Consume(soft, soft, "sink", func(ctx, _ context.Context, _ *Partition) error {
					runs <- struct{}{}
					<-ctx.Done()
					return nil
				}, func(err error) {
					if err != nil {
						errs <- err
					}
					joined <- struct{}{}
				})
			}()
			t.Cleanup(func() { stop(); require.NoError(t, <-done) })
			return joined, runs
		}
		await := func(c chan struct{}) {
			t.Helper()
			select {
			case <-c:
			case err := <-errs:
				t.Fatal(err)
			case <-time.After(time.Minute):
				t.Fatal("nothing within a minute")
			}
		}
		joined, runs := join()
		await(runs)
		await(joined)
		other, _ := join()
		await(other)
		await(joined) // again, after the attempt was interrupted
		require.Empty(t, errs)
	})
}

// TestLaggingConsumer checks that a consumer lags if there are frames from before the limit that
// it has not read, whether or not it has ever saved its cursor, and whether or not there are newer
// frames.
func TestLaggingConsumer(t *testing.T) {
	l := openLog(t, stores.StartKfake(t).ListenAddrs(), "lagging")
	begin := time.Now().Add(-time.Minute)
	lagging := func(limit time.Time) error {
		full, err := l.findLagging(t.Context(), limit)
		require.NoError(t, err)
		return full[0]
	}
	later := time.Now().Add(time.Hour)
	now := time.Now().UnixNano()
	appendTo(t, l, frame(1, now, 0), frame(2, now, 0))
	p, _ := own(t, l)
	require.NoError(t, lagging(begin))
	require.ErrorIs(t, lagging(later), durable.ErrFull, "nothing was read")
	require.NoError(t, p.Save(2, nil))
	require.ErrorIs(t, lagging(later), durable.ErrFull, "the second frame was not read")
	require.NoError(t, p.Save(3, nil))
	require.NoError(t, lagging(later), "everything was read")
}

// TestFullPartition checks that a consumer that is too far behind in one partition does not stop
// the others.
func TestFullPartition(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "partly", func(c *Config) { c.Partitions = 2 })
	appendTo(t, l, frame(1, time.Now().Add(-50*time.Minute).UnixNano(), 0))
	retention := "3600000"
	_, err := admin(t, cluster).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}, "partly")
	require.NoError(t, err)
	l.checkLag(t.Context())
	require.ErrorIs(t, l.Ready("city"), durable.ErrFull)
	other := dial.PartitionOf([]byte("city"), 2) ^ 1
	for i := range 100 {
		if name := fmt.Sprint("city", i); dial.PartitionOf([]byte(name), 2) == other {
			require.NoError(t, l.Ready(name))
			return
		}
	}
	t.Fatal("no product instance of the other partition")
}

func admin(t *testing.T, cluster *kfake.Cluster) *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// TestRetentionIsReadAgain checks that a change of the topic's retention has an effect without a
// restart, even before the consumer has joined its group for the first time.
func TestRetentionIsReadAgain(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "retention")
	appendTo(t, l, frame(1, time.Now().Add(-50*time.Minute).UnixNano(), 0))
	f := func(retentionMS string, want error) {
		t.Helper()
		change := []kadm.AlterConfig{{Name: "retention.ms", Value: &retentionMS}}
		_, err := admin(t, cluster).AlterTopicConfigs(t.Context(), change, "retention")
		require.NoError(t, err)
		l.checkLag(t.Context())
		require.ErrorIs(t, l.Ready(""), want)
	}
	f("3600000", durable.ErrFull)
	f("7200000", nil)
	f("3600000", durable.ErrFull)
	f("3153600000000", nil) // a hundred years
	f("3600000", durable.ErrFull)
	f("-1", nil)
}

// TestDeletedFrames checks that a reader continues after frames that were deleted before it read
// them, and that it logs their offsets.
func TestDeletedFrames(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "deleted")
	appendTo(t, l, frame(1, 1, 0), frame(2, 2, 0), frame(3, 3, 0), frame(4, 4, 0))
	p, _ := own(t, l)
	var logged bytes.Buffer
	p.log = &Log{cfg: l.cfg, window: l.window, client: l.client, transport: l.transport, log: zerolog.New(&logged), deleted: map[delivery]deleted{}}

	offsets := kadm.Offsets{}
	offsets.AddOffset("deleted", 0, 3, -1)
	deleted, err := admin(t, cluster).DeleteRecords(t.Context(), offsets)
	require.NoError(t, errors.Join(err, deleted.Error()))

	seqs, _ := read(t, p, 1, 1)
	require.Equal(t, []uint64{4}, seqs)
	require.Contains(t, logged.String(), `"level":"error","partition":0,"consumer":"sink","from":0,"to":2`)
	require.EqualValues(t, 3, p.log.Deleted("sink"))

	_, _ = read(t, p, 1, 1)
	require.EqualValues(t, 3, p.log.Deleted("sink"), "frames count once")
}

// TestDeletedFramesOfNewConsumer checks that frames are missed that were deleted before the
// consumer saved its cursor for the first time, while this process did not run.
func TestDeletedFramesOfNewConsumer(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "deleted")
	appendTo(t, l, frame(1, 1, 0), frame(2, 2, 0))
	_, leave := own(t, l)
	leave()
	offsets := kadm.Offsets{}
	offsets.AddOffset("deleted", 0, 1, -1)
	deleted, err := admin(t, cluster).DeleteRecords(t.Context(), offsets)
	require.NoError(t, errors.Join(err, deleted.Error()))
	restarted := openLog(t, cluster.ListenAddrs(), "deleted")
	own(t, restarted)
	require.EqualValues(t, 1, restarted.Deleted("sink"))
}

// TestBrokersAway checks that nothing is accepted without brokers, and that queued frames are
// voided only if they cannot have arrived.
func TestBrokersAway(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "away")
	appendTo(t, l, frame(1, 1, 0))
	require.NoError(t, l.Ready(""))
	cluster.Close()
	require.Eventually(t, func() bool { return errors.Is(l.Ready(""), ErrUnavailable) }, time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, l.Enqueue(&durable.Entry{Data: frame(2, 2, 0)}), ErrUnavailable)

	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.NoError(t, l.Close(soon), "it does not wait for the brokers")

	f := func(want bool, err error) {
		t.Helper()
		require.Equal(t, want, notStored(err), "%v", err)
	}
	f(true, kafka.NotEnoughReplicas)
	f(false, &net.OpError{Op: "read"})
	f(false, kafka.NotLeaderForPartition)
	f(false, kafka.NotEnoughReplicasAfterAppend)
	f(false, kafka.RequestTimedOut)
	f(false, context.DeadlineExceeded)
}

// TestUnsentFramesAreVoided checks that frames are voided if no attempt has sent them, because the
// client has no connection and does not know the leader.
func TestUnsentFramesAreVoided(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "unsent")
	appendTo(t, l, frame(1, 1, 0))
	cluster.Close()
	l.transport.CloseIdleConnections() // the first attempt could send the frame over one
	e := &durable.Entry{Data: frame(2, 2, 0)}
	soon := time.Now().Add(time.Second - l.cfg.produceTimeout())
	require.Equal(t, durable.ErrVoided, l.writers[0].write([]queued{{Entry: e, since: soon}}))
}

// TestReadyWhileProduceFails checks that the log is not ready while the leader responds to other
// requests but rejects the frames that wait.
func TestReadyWhileProduceFails(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "failing")
	appendTo(t, l, frame(1, 1, 0))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	e := &durable.Entry{Data: frame(2, 2, 0)}
	require.NoError(t, l.Enqueue(e))
	require.Eventually(t, func() bool { return l.Ready("") != nil }, time.Minute, time.Millisecond)
	require.Never(t, func() bool { return l.Ready("") == nil }, 3*watchEvery, time.Millisecond)
	fault.Remove()
	require.NoError(t, e.Wait())
	require.NoError(t, l.Ready(""))
}

// TestTooLargeFrame checks that a frame that the topic does not take is rejected at once, and does
// not keep the others of its partition waiting.
func TestTooLargeFrame(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "large")
	appendTo(t, l, frame(1, 1, 0))
	rejected := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1})
	e := &durable.Entry{Data: frame(2, 2, 0)}
	require.NoError(t, l.Enqueue(e))
	require.ErrorIs(t, e.Wait(), durable.ErrTooLarge)
	require.Equal(t, 1, rejected.Hits())
	rejected.Remove()
	require.NoError(t, l.Ready(""))
	appendTo(t, l, frame(3, 3, 0))
}

// TestRejectedFramesKeepConnections checks that the connections, which all partitions share, stay
// open while the leader of one partition rejects frames for a reason that another leader would also
// have.
func TestRejectedFramesKeepConnections(t *testing.T) {
	cluster := stores.StartKfake(t)
	l := openLog(t, cluster.ListenAddrs(), "connections")
	appendTo(t, l, frame(1, 1, 0))
	opened := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ApiVersions}, Observe: true, Count: -1})
	rejected := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 5})
	appendTo(t, l, frame(2, 2, 0))
	require.Equal(t, 5, rejected.Hits())
	require.LessOrEqual(t, opened.Hits(), 2, "a probe may open connections, because another request uses the others")
}

// TestUnreadableTopicConfig checks that the log is not used without the permission to read the
// settings of its topic, which may delete measurements before they are delivered, and that it is
// used once the permission is granted and until it is revoked.
func TestUnreadableTopicConfig(t *testing.T) {
	cluster := stores.StartKfake(t, kfake.SeedTopics(1, "secret"))
	deny := kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1}
	denied := cluster.Fault(deny)
	cfg := testConfig(cluster.ListenAddrs(), "secret")
	require.ErrorContains(t, cfg.Check(t.Context(), []string{"sink"}, window, true), "grant DescribeConfigs on it")
	l := openLog(t, cluster.ListenAddrs(), "secret", func(c *Config) { c.MaxFrameBytes = 1 << 10 })
	refused := func() bool {
		err := l.Ready("")
		return errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "grant DescribeConfigs on it")
	}
	require.Eventually(t, refused, time.Minute, 10*time.Millisecond, "%v", l.Ready(""))
	denied.Remove()
	appendTo(t, l, frame(1, time.Now().UnixNano(), 0))
	cluster.Fault(deny)
	l.checkLag(t.Context())
	require.True(t, refused(), "%v", l.Ready(""))
}

// TestLogTopic checks that a topic that could lose or reject batches is not used, and that
// the error names the setting.
func TestLogTopic(t *testing.T) {
	c := DefaultConfig()
	f := func(brokers, partitions, replicas int, key, value, want string) {
		t.Helper()
		topic := dial.Topic{Brokers: brokers, Config: map[string]string{
			"min.insync.replicas": "2", "cleanup.policy": "delete", "retention.bytes": "-1", "message.timestamp.type": "CreateTime",
			"max.message.bytes": "67108864",
		}}
		topic.Config[key] = value
		for range partitions {
			topic.Partitions = append(topic.Partitions, kafka.Partition{Replicas: make([]kafka.Broker, replicas)})
		}
		err := c.checkTopic(topic, window)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f(3, 6, 3, "", "", "")
	f(1, 6, 1, "min.insync.replicas", "1", "")
	f(3, 7, 3, "", "", "partitions: topic \"trafficd.log\" has 7 partitions, but the setting is 6")
	f(3, 6, 3, "min.insync.replicas", "1", "the loss of one broker can lose acknowledged measurements")
	f(3, 6, 1, "min.insync.replicas", "1", "the loss of one broker can lose acknowledged measurements")
	f(3, 6, 1, "", "", "no record can be written")
	f(3, 6, 3, "cleanup.policy", "compact", "cleanup.policy compact")
	f(3, 6, 3, "retention.bytes", "1000", "retention.bytes 1000")
	f(3, 6, 3, "retention.ms", "17999999", "retention.ms is 4h59m59.999s, must be at least five times pipeline.idempotency.window (1h0m0s)")
	f(3, 6, 3, "retention.ms", "18000000", "")
	f(3, 6, 3, "retention.ms", "9223372036854775807", "")
	f(3, 6, 3, "message.timestamp.type", "LogAppendTime", "LogAppendTime")
	f(3, 6, 3, "max.message.bytes", "1048588", "must be at least 16781312 for frames of max_frame_bytes")
}
