package main

import (
	"context"
	"errors"
	"fmt"

	"trafficd/pipeline"
	"trafficd/sinks/clickhouse"
	"trafficd/sinks/kafka"
)

// The sinks' names: of their cursors in the journal, so they never change.
const (
	sinkClickHouse = "clickhouse"
	sinkKafka      = "kafka"
)

// delivery is a running pipeline.Delivery.
type delivery struct {
	*pipeline.Delivery
	name string
	soft context.CancelFunc // finish the block in hand, then end
	hard context.CancelFunc // end now
	done chan struct{}      // closed at the end; then err is set
	err  error
}

// sinkNames are those that are switched on: only they hold frames in the journal.
func (d *daemon) sinkNames() []string {
	var names []string
	if d.cfg.ClickHouse.Enabled {
		names = append(names, sinkClickHouse)
	}
	if d.cfg.Kafka.Enabled {
		names = append(names, sinkKafka)
	}
	return names
}

func (d *daemon) startDeliveries() error {
	dead := pipeline.NewDeadLetters(d.cfg.DeadLetters)
	if err := dead.Check(); err != nil {
		return fmt.Errorf("%w; see the setting dead_letters", err)
	}
	for _, name := range d.sinkNames() {
		sink, cfg, err := d.sink(name)
		if err != nil {
			return errors.Join(err, d.stopDeliveries(context.Background()))
		}
		p, err := pipeline.NewDelivery(name, cfg, d.journal, sink, dead, d.log)
		if err != nil {
			return errors.Join(err, sink.Close(), d.stopDeliveries(context.Background()))
		}
		d.deliveries = append(d.deliveries, run(name, p))
	}
	if len(d.deliveries) == 0 {
		d.log.Warn().Msg("clickhouse.enabled and kafka.enabled are both false: what is accepted is delivered to nobody")
	}
	return nil
}

// sink makes a sink; it does not need its store.
func (d *daemon) sink(name string) (pipeline.Sink, pipeline.DeliveryConfig, error) {
	if name == sinkClickHouse {
		s, err := clickhouse.New(d.cfg.ClickHouse.Config, d.log)
		return s, d.cfg.ClickHouse.Delivery, err
	}
	s, err := kafka.New(d.cfg.Kafka.Config, d.log)
	return s, d.cfg.Kafka.Delivery, err
}

// run starts a delivery on a goroutine of its own; stopDeliveries ends it and waits.
func run(name string, p *pipeline.Delivery) *delivery {
	hard, cancelHard := context.WithCancel(context.Background())
	soft, cancelSoft := context.WithCancel(hard)
	d := &delivery{Delivery: p, name: name, soft: cancelSoft, hard: cancelHard, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		d.err = p.Run(hard, soft)
	}()
	return d
}

// stopDeliveries lets each finish the block in hand until ctx ends, then interrupts
// it; the block is repeated after the next start. Cursors are saved in both cases.
func (d *daemon) stopDeliveries(ctx context.Context) error {
	for _, x := range d.deliveries {
		x.soft()
	}
	var errs []error
	for _, x := range d.deliveries {
		select {
		case <-x.done:
		case <-ctx.Done():
			d.log.Warn().Str("sink", x.name).Msg("the store does not take the block in hand within the grace: it is delivered after the next start")
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
