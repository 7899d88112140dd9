package kafkalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/durable"
)

// ErrUnavailable means that the brokers cannot store frames, or that the topic is not suitable. It
// is always wrapped together with the cause.
var ErrUnavailable = errors.New("cannot write to the log in Kafka")

// Log is a journal in a Kafka topic. It is safe for concurrent use.
type Log struct {
	cfg       Config
	window    time.Duration
	consumers []string
	log       zerolog.Logger
	client    *kafka.Client
	transport *dial.Transport

	mu       sync.Mutex
	writers  []*writer // indexed by partition
	bytes    int64     // total size of the frames that are not settled
	unusable error     // last error of the topic's check; nil once it has passed
	closed   bool
	seen     map[delivery]*seen // batches read when this replica last owned the partition
	deleted  map[delivery]deleted

	checked           chan struct{}   // closed when the topic has passed its check for the first time
	hard              context.Context // done when waiting frames are no longer sent
	stop              context.CancelFunc
	writing, watching sync.WaitGroup
}

// delivery identifies a pipeline.Delivery that reads the log.
type delivery struct {
	consumer  string
	partition int
}

// deleted counts the frames that were deleted before a delivery read them.
type deleted struct {
	frames int64
	to     int64 // offset before which all such frames have been counted
}

// Open returns a log and starts its writers, which Close stops. It does not wait for the brokers:
// Ready and Enqueue fail until the topic has passed its check. While one of the consumers is too
// far behind in a partition, they fail with durable.ErrFull for that partition. cfg must be valid.
// window is the idempotency window, within which repeated rows of a batch are dropped.
func Open(cfg Config, consumers []string, window time.Duration, log zerolog.Logger) (*Log, error) {
	l, err := newLog(cfg, consumers, window, log)
	if err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}

// start starts the goroutines that Close ends.
func (l *Log) start() {
	for p := range l.cfg.Partitions {
		w := &writer{l: l, partition: p, wake: make(chan struct{}, 1)}
		l.writers = append(l.writers, w)
		l.writing.Go(w.run)
	}
	l.watching.Go(func() { l.watch(l.hard) })
}

func newLog(cfg Config, consumers []string, window time.Duration, log zerolog.Logger) (*Log, error) {
	transport, err := cfg.Transport()
	if err != nil {
		return nil, err
	}
	for _, c := range consumers {
		deletedTotal.WithLabelValues(c)
	}
	hard, stop := context.WithCancel(context.Background())
	return &Log{
		cfg: cfg, window: window, consumers: consumers, log: log, transport: transport,
		client:   &kafka.Client{Addr: cfg.Addr(), Timeout: cfg.RequestTimeout, Transport: transport},
		unusable: errors.New("the topic has not been checked"), seen: map[delivery]*seen{}, deleted: map[delivery]deleted{},
		checked: make(chan struct{}), hard: hard, stop: stop,
	}, nil
}

// Deleted returns the number of frames that the topic's retention deleted before this replica could
// deliver them to the consumer.
func (l *Log) Deleted(consumer string) (frames int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, d := range l.deleted {
		if of.consumer == consumer {
			frames += d.frames
		}
	}
	return frames
}

// Close makes Enqueue fail, sends the waiting frames until ctx is done, and closes the connections.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	for _, w := range l.writers {
		w.signal()
	}
	l.mu.Unlock()
	defer context.AfterFunc(ctx, l.stop)()
	l.writing.Wait()
	l.stop()
	l.watching.Wait()
	l.transport.CloseIdleConnections()
	return nil
}

func (l *Log) writerFor(productInstance string) *writer {
	return l.writers[dial.PartitionOf([]byte(productInstance), len(l.writers))]
}

// Ready implements pipeline.Journal. Without a product instance, it returns an error only if no
// partition can be written.
func (l *Log) Ready(productInstance string) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if productInstance != "" {
		return l.writerFor(productInstance).ready()
	}
	for _, w := range l.writers {
		if err = w.ready(); err == nil {
			return nil
		}
	}
	return err
}

// ready returns an error if no frame can be queued for the partition. The caller must hold Log.mu.
func (w *writer) ready() error {
	l := w.l
	switch {
	case l.closed:
		return durable.ErrClosed
	case l.unusable != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, l.unusable)
	case w.full != nil:
		return w.full
	case w.failing != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, w.failing)
	}
	return nil
}

// Enqueue implements pipeline.Journal. It does not set e.Seq.
func (l *Log) Enqueue(e *durable.Entry) error {
	if len(e.Data) > l.cfg.MaxFrameBytes {
		return durable.ErrTooLarge
	}
	h, err := batch.FrameHeader(e.Data)
	if err != nil {
		return err
	}
	w := l.writerFor(h.ProductInstance)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := w.ready(); err != nil {
		return err
	}
	if l.bytes > 0 && l.bytes+int64(len(e.Data)) > maxQueueBytes {
		return durable.ErrBusy
	}
	e.Open()
	l.bytes += int64(len(e.Data))
	w.waiting = append(w.waiting, queued{e, h, time.Now()})
	w.signal()
	return nil
}

// Check returns an error if a file named in the settings or, if deep, the brokers, the topic or the
// groups of the consumers cannot be used. Each joined error starts with a setting's key. Check
// writes nothing.
func (c Config) Check(ctx context.Context, consumers []string, window time.Duration, deep bool) error {
	t, err := c.Kafka.Check(ctx, "", deep)
	if t.Brokers == 0 {
		return err
	}
	l, newErr := newLog(c, consumers, window, zerolog.Nop())
	if newErr != nil {
		return err // c.Kafka.Check has reported newErr
	}
	defer l.transport.CloseIdleConnections()
	defer l.stop()
	errs := []error{err}
	for _, consumer := range consumers {
		if _, err := l.committed(ctx, consumer); errors.Is(err, kafka.GroupAuthorizationFailed) {
			errs = append(errs, fmt.Errorf("group: %w; grant Read on it", err))
		}
	}
	switch {
	case len(t.Partitions) > 0:
		errs = append(errs, c.checkTopic(t, window), dial.CheckPermissions(ctx, l.client, c.Topic))
	case err == nil:
		if err := l.create(ctx, t.Brokers, true); err != nil {
			errs = append(errs, fmt.Errorf("topic: %w", err))
		}
	}
	return errors.Join(errs...)
}

const watchEvery = time.Second

// watch checks the topic until it can be used. After that, it monitors whether the leaders of the
// partitions can be reached and how far behind the consumers are.
func (l *Log) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		l.mu.Lock()
		usable := l.unusable == nil
		l.mu.Unlock()
		if !usable {
			if err := l.prepare(ctx); ctx.Err() == nil {
				l.setUnusable(err)
			}
		} else {
			l.probe(ctx, n%l.cfg.Partitions)
			if n%10 == 0 {
				l.checkLag(ctx)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *Log) setUnusable(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.log.Info().Str("topic", l.cfg.Topic).Int("partitions", l.cfg.Partitions).Msg("the log in Kafka is ready")
		select {
		case <-l.checked:
		default:
			close(l.checked)
		}
	case l.unusable == nil || l.unusable.Error() != err.Error():
		l.log.Warn().Err(err).Msg("the log in Kafka cannot be used; retrying")
	}
	l.unusable = err
}

// prepare creates the topic if it does not exist, and checks it.
func (l *Log) prepare(ctx context.Context) error {
	t, err := dial.DescribeTopic(ctx, l.client, l.cfg.Topic)
	if err != nil {
		l.transport.CloseIdleConnections() // the next attempt uses another broker
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return err
	}
	if err == nil && len(t.Partitions) == 0 {
		if err := l.create(ctx, t.Brokers, false); err != nil {
			return err
		}
	}
	if len(t.Partitions) == 0 { // Check finds the cause of err, or a topic that this broker does not know yet
		t, err = l.cfg.Kafka.Check(ctx, "journal.log.", true)
	}
	if len(t.Partitions) == 0 {
		return errors.Join(err, errors.New("the brokers return no partitions of the topic"))
	}
	if err := l.cfg.checkTopic(t, l.window); err != nil { // the earlier err does not matter: the other brokers suffice
		return err
	}
	l.transport.CloseIdleConnections() // discards cached metadata from before the topic existed
	return nil
}

// create creates the topic. With dryRun, it only checks whether that is possible.
func (l *Log) create(ctx context.Context, brokers int, dryRun bool) error {
	replicas := l.cfg.ReplicationFactor
	if replicas == 0 {
		replicas = min(3, brokers)
	}
	entry := func(name string, value any) kafka.ConfigEntry {
		return kafka.ConfigEntry{ConfigName: name, ConfigValue: fmt.Sprint(value)}
	}
	_, err := dial.CreateTopic(ctx, l.client, kafka.TopicConfig{
		Topic: l.cfg.Topic, NumPartitions: l.cfg.Partitions, ReplicationFactor: replicas,
		ConfigEntries: []kafka.ConfigEntry{
			entry("min.insync.replicas", min(2, replicas)), entry("cleanup.policy", "delete"),
			entry("retention.ms", l.cfg.Retention.Milliseconds()), entry("retention.bytes", -1),
			entry("message.timestamp.type", "CreateTime"), entry("max.message.bytes", l.cfg.MaxFrameBytes+recordOverhead),
		},
	}, dryRun)
	return err
}

// probe requests the last offset of the given partition, and of each failing one, to find out
// whether their leaders can be reached.
func (l *Log) probe(ctx context.Context, partition int) {
	_, partitions, err := dial.Partitions(ctx, l.client, l.cfg.Topic)
	switch {
	case err != nil:
		for _, w := range l.writers {
			l.probed(ctx, w, err)
		}
		return
	case len(partitions) != l.cfg.Partitions:
		l.setUnusable(fmt.Errorf("the topic now has %d partitions", len(partitions)))
		return
	}
	var probes sync.WaitGroup // concurrent, so that none waits for the leader of another partition
	for _, w := range l.writers {
		l.mu.Lock()
		failing := w.failing != nil
		l.mu.Unlock()
		if failing || w.partition == partition {
			probes.Go(func() {
				_, err := dial.Offset(ctx, l.client, l.cfg.Topic, w.partition, kafka.LastOffset)
				l.probed(ctx, w, err)
			})
		}
	}
	probes.Wait()
}

// probed records the outcome of a probe. A success is ignored while frames are being written: a
// leader that can be reached may still reject them.
func (l *Log) probed(ctx context.Context, w *writer, err error) {
	if err != nil {
		l.transport.CloseIdleConnections()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() == nil && (err != nil || !w.writing) {
		w.report(err)
	}
}

// checkLag makes Enqueue fail while frames that a consumer has not read are older than four fifths
// of the topic's retention, and so will soon be deleted.
func (l *Log) checkLag(ctx context.Context) {
	t, err := dial.DescribeTopic(ctx, l.client, l.cfg.Topic)
	switch {
	case errors.Is(cmp.Or(err, t.ConfigErr), kafka.TopicAuthorizationFailed): // the permission was revoked
		l.setUnusable(cmp.Or(err, t.ConfigErr))
		return
	case t.Config == nil:
		return // no response; probe reports that the brokers cannot be reached
	}
	ms := int64(t.Number("retention.ms", -1))
	full := make([]error, len(l.writers))
	if ms >= 0 {
		limit := time.UnixMilli(max(0, time.Now().UnixMilli()-(ms-ms/5)))
		if full, err = l.findLagging(ctx, limit); err != nil {
			return // probe reports that the brokers cannot be reached
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, w := range l.writers {
		if w.full = full[p]; w.full != nil {
			l.log.Warn().Err(w.full).Msg("rejecting the batches of a partition")
		}
	}
}

// findLagging returns an error that wraps durable.ErrFull for each partition of which a consumer
// has not read all frames written before limit, and nil for the others.
func (l *Log) findLagging(ctx context.Context, limit time.Time) (full []error, err error) {
	committed := map[string][]kafka.OffsetFetchPartition{}
	for _, c := range l.consumers {
		if committed[c], err = l.committed(ctx, c); err != nil {
			return nil, err
		}
	}
	full = make([]error, len(l.writers))
	errs := make([]error, len(l.writers))
	var reading sync.WaitGroup // concurrent, because kafka-go sends a request for each offset
	for p := range l.writers {
		reading.Go(func() {
			first, end, err := l.bounds(ctx, p)
			if err == nil {
				var newer int64
				if newer, err = dial.Offset(ctx, l.client, l.cfg.Topic, p, limit.UnixMilli()); newer >= 0 {
					end = newer // the end of the frames written before limit
				}
			}
			errs[p] = err
			for c, partitions := range committed {
				if max(partitions[p].CommittedOffset, first) < end {
					full[p] = fmt.Errorf("%w: %s has not read all frames of partition %d of topic %q before %s; four fifths of retention.ms have passed",
						durable.ErrFull, c, p, l.cfg.Topic, limit.UTC().Format(time.RFC3339))
				}
			}
		})
	}
	reading.Wait()
	return full, errors.Join(errs...)
}

// bounds returns the offset of a partition's oldest frame, and the offset after its newest one.
func (l *Log) bounds(ctx context.Context, partition int) (first, end int64, err error) {
	if first, err = dial.Offset(ctx, l.client, l.cfg.Topic, partition, kafka.FirstOffset); err != nil {
		return 0, 0, err
	}
	end, err = dial.Offset(ctx, l.client, l.cfg.Topic, partition, kafka.LastOffset)
	return first, end, err
}

// committed returns the commits of a consumer's group, indexed by partition. The offset is -1 if
// there is no commit.
func (l *Log) committed(ctx context.Context, consumer string) (partitions []kafka.OffsetFetchPartition, err error) {
	var all []int
	for p := range l.writers {
		all, partitions = append(all, p), append(partitions, kafka.OffsetFetchPartition{CommittedOffset: -1})
	}
	r, err := l.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: l.group(consumer), Topics: map[string][]int{l.cfg.Topic: all}})
	if err == nil {
		err = r.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		return partitions, nil
	}
	if err == nil {
		found := 0
		for _, p := range r.Topics[l.cfg.Topic] {
			if err = errors.Join(err, p.Error); p.Partition >= 0 && p.Partition < len(partitions) {
				partitions[p.Partition] = p
				found++
			}
		}
		if err == nil && found != len(all) {
			err = errors.New("the response does not contain all partitions")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cursors of group %q: %w", l.group(consumer), err)
	}
	return partitions, nil
}

func (l *Log) group(consumer string) string { return l.cfg.Group + "." + consumer }
