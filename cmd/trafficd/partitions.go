package main

import (
	"context"
	"errors"
	"sync"

	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
)

// partitions delivers to a sink the partitions of a journal in Kafka that the sink's consumer group
// assigns to this replica.
type partitions struct {
	d    *daemon
	sink config.Sink
	dead *pipeline.DeadLetters

	mu      sync.Mutex
	running map[int]*pipeline.Delivery // by partition
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
	x, err := p.d.newDelivery(p.sink, p.configFor(source), source, p.dead, log)
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
	if errors.Is(err, journal.ErrClosed) {
		return nil // another replica continues
	}
	return err
}

// configFor returns the configuration for the delivery of a partition. The replica's partitions
// share the memory for rows, and only the sink of partition 0 creates and derives tables.
func (p *partitions) configFor(source *kafkalog.Partition) *config.Config {
	c := *p.d.cfg
	for _, delivery := range []*pipeline.DeliveryConfig{&c.ClickHouse.Delivery, &c.Kafka.Delivery} {
		delivery.MaxRows = max(1, delivery.MaxRows/source.Assigned)
		delivery.MinRows = min(delivery.MinRows, delivery.MaxRows)
	}
	if source.ID != 0 {
		c.ClickHouse.Migrate, c.ClickHouse.DeriveInterval = false, 0
	}
	return &c
}

// Status implements deliverer.
func (p *partitions) Status() pipeline.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := pipeline.Status{Rows: p.rows, Trouble: p.trouble}
	for _, x := range p.running {
		s := x.Status()
		all.Lag = max(all.Lag, s.Lag)
		all.Waiting += s.Waiting
		all.Frames += s.Frames
		all.Rows += s.Rows
		if all.Trouble == nil {
			all.Trouble = s.Trouble
		}
	}
	return all
}
