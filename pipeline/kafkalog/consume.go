package kafkalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/dial"
)

// Consume joins the group of a consumer. It returns an error only for invalid settings. Consume
// calls run in a separate goroutine for each partition that the group assigns to this replica, and
// again if run returns early. run must return soon after its soft is done, and immediately when its
// ctx is done. Consume returns nil when soft is done and all calls have returned. It calls report
// with errors, and with nil when it has joined the group.
func (l *Log) Consume(
	ctx, soft context.Context, consumer string, run func(ctx, soft context.Context, p *Partition) error, report func(error),
) error {
	select { // joining a group could create a missing topic with the brokers' defaults
	case <-l.checked:
	case <-soft.Done():
	}
	for soft.Err() == nil {
		m := &membership{log: l, consumer: consumer, deliver: run, report: report}
		if err := m.run(ctx, soft); err != nil {
			return err
		}
	}
	return nil
}

// membership is one membership in a consumer group, from joining it to leaving it.
type membership struct {
	log      *Log
	consumer string
	deliver  func(ctx, soft context.Context, p *Partition) error
	report   func(error)
	left     context.Context // done when the member must leave the group
	leave    context.CancelFunc
}

func (m *membership) run(ctx, soft context.Context) error {
	l := m.log
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: l.group(m.consumer), Brokers: []string{dial.Bootstrap}, Dialer: l.cfg.Dialer(l.transport), Topics: []string{l.cfg.Topic},
		HeartbeatInterval: l.cfg.sessionTimeout / 10, SessionTimeout: l.cfg.sessionTimeout, RebalanceTimeout: l.cfg.sessionTimeout,
		JoinGroupBackoff: 500 * time.Millisecond, Timeout: l.cfg.RequestTimeout,
	})
	if err != nil {
		return err
	}
	defer func() { // leave the group; this may wait for the brokers
		closed := make(chan struct{})
		go func() { _ = g.Close(); close(closed) }() // Close always returns nil
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}()
	m.left, m.leave = context.WithCancel(soft)
	defer m.leave()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		generation, err := g.Next(m.left)
		switch {
		case m.left.Err() != nil:
			return nil
		case err != nil:
			m.report(fmt.Errorf("cannot join group %q: %w", l.group(m.consumer), err))
			continue
		}
		m.report(nil)
		assigned := generation.Assignments[l.cfg.Topic]
		l.log.Info().Str("group", generation.GroupID).Int32("generation", generation.ID).Int("partitions", len(assigned)).
			Msg("partitions of the log assigned")
		for _, a := range assigned {
			running.Add(1)
			generation.Start(func(current context.Context) {
				defer running.Done()
				m.runPartition(ctx, soft, current, &Partition{
					ID: a.ID, Assigned: len(assigned), log: l, consumer: m.consumer, generation: generation, leave: m.leave,
				})
			})
		}
	}
}

// runPartition delivers a partition until soft is done, the generation ends or the group is left.
func (m *membership) runPartition(ctx, soft, current context.Context, p *Partition) {
	hard, stop := context.WithCancel(ctx)
	defer stop()
	owned, lose := context.WithCancel(m.left)
	defer lose()
	defer context.AfterFunc(current, lose)()
	// When the partition is revoked, the delivery has a while to finish its attempt; otherwise the
	// block is in doubt for the next owner. The grace is much shorter than the session, because the
	// replica must rejoin the group within a session.
	grace := min(2*time.Second, m.log.cfg.sessionTimeout/3)
	defer context.AfterFunc(owned, func() {
		select {
		case <-soft.Done(): // the daemon is stopping; ctx bounds the attempt
		case <-hard.Done():
		case <-time.After(grace):
			stop()
		}
	})()
	p.ctx, p.hard = owned, hard
	if p.ID >= len(m.log.writers) {
		m.report(fmt.Errorf("topic %q has more than %d partitions: set partitions to the actual number", m.log.cfg.Topic, len(m.log.writers)))
		<-owned.Done()
	}
	for owned.Err() == nil {
		err := p.open()
		if err == nil {
			err = m.deliver(hard, owned, p)
		}
		if owned.Err() == nil && err != nil {
			m.report(err)
			select {
			case <-owned.Done():
			case <-time.After(time.Second):
			}
		}
	}
}
