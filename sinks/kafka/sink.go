package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// Sink delivers blocks of rows to the topic. It is not safe for concurrent use.
type Sink struct {
	cfg     Config
	log     zerolog.Logger
	cluster *cluster

	session       *session  // nil: the next plan gets a new producer ID
	sessionTarget string    // cluster ID and topic that the session belongs to
	batchBytes    int       // less than the setting after a broker has rejected a record batch as too large
	planned       []byte    // the last plan of this process
	current       *delivery // the delivery in progress, or nil
	encoders      []encoder // one for each concurrent request
}

// New returns a sink after reading the files that the configuration, which must be valid, names. It
// does not connect.
func New(cfg Config, log zerolog.Logger) (*Sink, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	return &Sink{cfg: cfg, log: log, cluster: c, batchBytes: cfg.BatchBytes, encoders: make([]encoder, cfg.ParallelRequests)}, nil
}

// Plan implements pipeline.Sink. state is what the last Deliver returned, even with a
// *batch.PermanentError, or nil before the first delivery. The plan does not retain rows. Plan can
// be retried after any error.
func (s *Sink) Plan(ctx context.Context, state []byte, rows batch.Block) (n int, planned []byte, err error) {
	defer func() {
		if err != nil {
			planErrorsTotal.Inc()
		}
	}()
	p := plan{codec: codecs[s.cfg.Compression]}
	if p.state, err = s.baseState(ctx, state); err != nil {
		return 0, nil, err
	}
	if p.session, err = s.baseSession(ctx, p.state); err != nil {
		return 0, nil, err
	}
	p.rows = fit(rows, len(p.offsets), s.batchBytes, s.cfg.BlockRows)
	p.first, p.last = firstAndLast(rows.Head(p.rows))
	s.planned = p.encode()
	return p.rows, bytes.Clone(s.planned), nil
}

// Deliver implements pipeline.Sink: it writes the planned rows, each exactly once, and returns when
// all in-sync replicas have them. If the error is a *batch.PermanentError, the returned state
// replaces the previous one (see the package comment).
func (s *Sink) Deliver(ctx context.Context, planned []byte, rows batch.Block) (state []byte, err error) {
	if len(rows) > 0 {
		if err := s.cluster.checkAge(ctx, rows[0].ReceivedAt); err != nil {
			return nil, err
		}
	}
	d, err := s.resume(ctx, planned, rows)
	if err != nil {
		lookUpErrorsTotal.Inc()
		return nil, err
	}
	defer func() { d.block = nil }() // the caller owns the rows
	// If a response requires a lookup, look up and retry at once. After three attempts, the delivery
	// loop retries with backoff.
	for range 3 {
		if err := s.resolve(ctx, d); err != nil {
			lookUpErrorsTotal.Inc()
			return nil, s.repair(ctx, d, err)
		}
		s.attempt(ctx, d)
		if err = s.conclude(d); err == nil {
			return s.finish(d)
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	return nil, s.repair(ctx, d, err)
}

// repair prepares the next attempt of a delivery that failed with err. It creates the topic if it
// is missing and create_topic is set. If the topic cannot be described or created, repair returns
// the reason, otherwise err. It forgets the delivery if the topic has fewer partitions than
// planned, because it was recreated: the next attempt divides the rows among the new partitions, as
// after a restart.
func (s *Sink) repair(ctx context.Context, d *delivery, err error) error {
	_, partitions, unusable := s.describe(ctx, d.topic)
	if unusable != nil {
		return unusable
	}
	if partitions < len(d.parts) {
		s.current, s.planned = nil, nil
	}
	return err
}

// Probe creates the topic if it is missing and create_topic is set, and returns an error if the
// topic cannot be read.
func (s *Sink) Probe(ctx context.Context) error {
	_, _, err := s.describe(ctx, s.cfg.Topic) // kafka-go may return cached metadata
	if err == nil {
		_, err = s.cluster.offset(ctx, 0, kafka.LastOffset)
	}
	if err != nil {
		lookUpErrorsTotal.Inc()
	}
	return err
}

// Close closes idle connections. A sink that is used after Close opens new ones.
func (s *Sink) Close() error {
	s.cluster.refresh()
	return nil
}

// baseState returns the state from which a plan starts, for the current partitions of the topic.
func (s *Sink) baseState(ctx context.Context, encoded []byte) (state, error) {
	id, partitions, err := s.describe(ctx, s.cfg.Topic)
	if err != nil {
		return state{}, err
	}
	base := state{cluster: id, topic: s.cfg.Topic}
	if encoded != nil {
		last, err := decodeState(encoded)
		if err != nil {
			return state{}, fmt.Errorf("cannot plan from the stored state: %w", err)
		}
		if last.cluster == base.cluster && last.topic == base.topic {
			base = last
		}
	}
	if err := s.checkMetadata(ctx, base, partitions); err != nil {
		return state{}, err
	}
	base.offsets = base.offsets[:min(len(base.offsets), partitions)]
	if s.session == nil {
		if err := s.identify(ctx, &base); err != nil {
			return state{}, err
		}
	}
	for p := len(base.offsets); p < partitions; p++ {
		end, err := s.cluster.offset(ctx, p, kafka.LastOffset)
		if err != nil {
			return state{}, err
		}
		base.offsets = append(base.offsets, end-1)
	}
	return base, nil
}

// checkMetadata returns an error if the brokers report fewer partitions than there were, although
// the topic has not been recreated. Partitions are never removed from a topic: a broker does not
// know the latest ones yet.
func (s *Sink) checkMetadata(ctx context.Context, last state, partitions int) error {
	if partitions >= len(last.offsets) || last.topicID == (dial.TopicID{}) {
		return nil
	}
	id, err := s.cluster.topicID(ctx)
	if err == nil && id == last.topicID {
		s.cluster.refresh() // ask another broker next time
		err = fmt.Errorf("a broker reports only %d of %d partitions of topic %q: its metadata is outdated",
			partitions, len(last.offsets), last.topic)
	}
	return err
}

// identify sets the topic's ID. If the state belongs to a former topic of the same name, its
// offsets are replaced so that lookups read the current one from its start.
func (s *Sink) identify(ctx context.Context, base *state) error {
	id, err := s.cluster.topicID(ctx)
	if err != nil {
		return err
	}
	if base.recreated(id) {
		for p := range base.offsets {
			base.offsets[p] = unknownOffset
		}
	}
	base.topicID = id
	return nil
}

// describe selects a topic, creates it if it is missing and create_topic is set, and returns the
// cluster ID and the topic's number of partitions.
func (s *Sink) describe(ctx context.Context, topic string) (id string, partitions int, err error) {
	s.cluster.selectTopic(topic)
	id, partitions, err = s.cluster.describe(ctx)
	if !errors.Is(err, kafka.UnknownTopicOrPartition) || s.cfg.CreateTopic.Partitions == 0 {
		return id, partitions, err
	}
	created, err := s.cluster.create(ctx, false)
	if err != nil {
		return "", 0, err
	}
	if created { // otherwise the broker did not know the topic yet
		s.log.Info().Str("topic", topic).Int("partitions", s.cfg.CreateTopic.Partitions).Msg("topic created")
	}
	return s.cluster.describe(ctx)
}

// baseSession returns a copy of the session for a plan. If there is no session for the topic, it
// starts one with a new producer ID.
func (s *Sink) baseSession(ctx context.Context, base state) (session, error) {
	target := base.cluster + "/" + base.topic
	if s.session == nil || s.sessionTarget != target {
		id, epoch, err := s.cluster.newProducer(ctx)
		if err != nil {
			return session{}, err
		}
		s.session, s.sessionTarget = &session{id: id, epoch: epoch}, target
	}
	for len(s.session.sequences) < len(base.offsets) {
		s.session.sequences = append(s.session.sequences, 0)
	}
	planned := *s.session
	planned.sequences = slices.Clone(planned.sequences[:len(base.offsets)])
	return planned, nil
}
