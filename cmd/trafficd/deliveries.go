package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/receipts"
	"trafficd/sinks/clickhouse"
)

// delivery is the running delivery of a sink: a pipeline.Delivery or, for a journal in Kafka, one
// per partition.
type delivery struct {
	name string
	deliverer
	soft context.CancelFunc // makes Run finish the current block and return
	hard context.CancelFunc // makes Run return immediately
	done chan struct{}      // closed after err is set
	err  error
}

type deliverer interface {
	Run(ctx, soft context.Context) error
	Status() pipeline.Status
}

func (d *daemon) startDeliveries() error {
	d.dead = pipeline.NewDeadLetters(d.cfg.DeadLetters)
	if err := d.dead.Check(); err != nil {
		return fmt.Errorf("%w; see the setting dead_letters", err)
	}
	for _, s := range d.cfg.EnabledSinks() {
		p, err := d.newDeliverer(s)
		if err != nil {
			return errors.Join(err, d.stopDeliveries(context.Background()))
		}
		pipeline.ShowDelivery(s.Name, d.dead, p.Status)
		hard, cancelHard := context.WithCancel(context.Background())
		soft, cancelSoft := context.WithCancel(hard)
		x := &delivery{name: s.Name, deliverer: p, soft: cancelSoft, hard: cancelHard, done: make(chan struct{})}
		go func() { // stopDeliveries stops it and waits for done
			defer close(x.done)
			x.err = x.Run(hard, soft)
		}()
		d.deliveries = append(d.deliveries, x)
	}
	if len(d.deliveries) == 0 {
		d.log.Warn().Msg(noSinks())
	}
	return nil
}

// noSinks returns the message about settings that enable no sink.
func noSinks() string {
	var settings []string
	for _, s := range config.Sinks {
		settings = append(settings, s.Name+".enabled")
	}
	return "no sink enabled: accepted measurements are discarded; set " + strings.Join(settings, " or ")
}

func (d *daemon) newDeliverer(s config.Sink) (deliverer, error) {
	if d.shared != nil {
		return &partitions{d: d, sink: s, running: map[int]*pipeline.Delivery{}}, nil
	}
	return d.newDelivery(s, d.cfg, pipeline.Local(d.local, s.Name), d.log)
}

func (d *daemon) newDelivery(s config.Sink, c *config.Config, source pipeline.Source, log zerolog.Logger) (*pipeline.Delivery, error) {
	store, err := s.Open(c, log)
	if err != nil {
		return nil, err
	}
	p, err := pipeline.NewDelivery(s.Name, s.Delivery(c), source, store, d.dead, log)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if archive, ok := store.(*clickhouse.Sink); ok && c.ClickHouse.DeriveInterval == d.cfg.ClickHouse.DeriveInterval {
		var codes []string
		for _, t := range c.Pipeline.Validate.MeasureTypes {
			if !strings.HasSuffix(t.Code, "*") {
				codes = append(codes, t.Code)
			}
		}
		archive.Detectors, archive.Units = &d.detectors, clickhouse.NewUnits(codes, c.Pipeline.Validate.Units())
	}
	if d.tracing != nil {
		p.Tracer = d.tracing
	}
	p.Receipts = d.receipts
	return p, nil
}

// openReceipts opens what keeps what became of batches, if there is an archive.
func (d *daemon) openReceipts() (err error) {
	if !d.cfg.ClickHouse.Enabled {
		return nil
	}
	if d.table, err = clickhouse.NewReceipts(d.cfg.ClickHouse.Config, d.log); err == nil {
		d.receipts, err = receipts.Open(filepath.Join(d.cfg.Journal.Dir, "receipts"), d.table, d.log)
	}
	return err
}

func (d *daemon) closeReceipts(ctx context.Context) error {
	if d.table == nil {
		return nil
	}
	return until(ctx, func() error { return errors.Join(d.receipts.Close(ctx), d.table.Close()) })
}

// until calls f, but does not wait for it any longer once ctx is done: a client of a store that
// hangs returns only after its timeout. What f has not finished then is as after a kill.
func until(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// stopDeliveries lets each delivery finish its current block until ctx is done, and then interrupts
// it. An interrupted block is retried after the next start. Cursors are saved in both cases.
func (d *daemon) stopDeliveries(ctx context.Context) error {
	for _, x := range d.deliveries {
		x.soft()
	}
	var errs []error
	for _, x := range d.deliveries {
		select {
		case <-x.done:
		case <-ctx.Done():
			d.log.Warn().Str("sink", x.name).
				Msg("the store did not accept the current block in time; the block will be retried after the next start")
			x.hard()
			<-x.done
		}
		x.hard()
		if x.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.name, x.err))
		}
	}
	return errors.Join(errs...)
}

// partitions delivers to a sink the partitions of a journal in Kafka that the sink's consumer group
// assigns to this replica.
type partitions struct {
	d    *daemon
	sink config.Sink

	mu      sync.Mutex
	running map[int]*pipeline.Delivery // keyed by partition
	rows    int64                      // delivered from partitions that are no longer assigned
	trouble error                      // current error of the consumer group, or nil
}

// Run implements deliverer.
func (p *partitions) Run(ctx, soft context.Context) error {
	return p.d.shared.Consume(ctx, soft, p.sink.Name, p.deliver, func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil && p.trouble == nil {
			p.d.log.Warn().Err(err).Str("sink", p.sink.Name).Msg("cannot deliver from the journal; retrying")
		}
		p.trouble = err
	})
}

func (p *partitions) deliver(ctx, soft context.Context, source *kafkalog.Partition) error {
	log := p.d.log.With().Int("partition", source.ID).Logger()
	x, err := p.d.newDelivery(p.sink, p.configFor(source), source, log)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.running[source.ID], p.trouble = x, nil
	p.mu.Unlock()
	err = x.Run(ctx, soft)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, source.ID)
	p.rows += x.Status().Rows
	if errors.Is(err, durable.ErrClosed) {
		return nil // another replica continues
	}
	return err
}

// configFor returns the configuration for the delivery of a partition. The replica's partitions
// share the memory for rows, and only the sink of partition 0 updates the derived tables.
func (p *partitions) configFor(source *kafkalog.Partition) *config.Config {
	c := *p.d.cfg
	for _, delivery := range []*pipeline.DeliveryConfig{&c.ClickHouse.Delivery, &c.Kafka.Delivery} {
		delivery.MaxRows = max(1, delivery.MaxRows/source.Assigned)
		delivery.MinRows = min(delivery.MinRows, delivery.MaxRows)
	}
	if source.ID != 0 {
		c.ClickHouse.DeriveInterval = 0
	}
	return &c
}

// Status implements deliverer.
func (p *partitions) Status() pipeline.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := pipeline.Status{Rows: p.rows, Trouble: p.trouble, Counted: true}
	for _, x := range p.running {
		s := x.Status()
		all.Lag, all.Stalled = max(all.Lag, s.Lag), max(all.Stalled, s.Stalled)
		all.Waiting += s.Waiting
		all.Counted = all.Counted && s.Counted
		all.Frames += s.Frames
		all.Rows += s.Rows
		if all.Trouble == nil {
			all.Trouble = s.Trouble
		}
	}
	return all
}
