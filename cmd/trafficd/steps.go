package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// step is a part of the daemon that is started and stopped. stop returns when
// nothing of the part runs any more; past its context's end it stops as
// fast as it can without losing what was promised.
type step struct {
	name  string
	start func() error
	stop  func(context.Context) error
}

// runner starts steps in their order, waits, and stops those that were started
// in the opposite order.
type runner struct {
	timeout  time.Duration // for the whole stop: three quarters grace, then hard
	draining func()        // told before anything is stopped; may be nil
	log      zerolog.Logger
}

// run returns nil after a signal and a complete stop. failed tells of a part that
// cannot go on by itself.
func (r runner) run(steps []step, signals <-chan os.Signal, failed <-chan error) error {
	started, err := r.start(steps)
	if err == nil {
		select {
		case s := <-signals:
			r.log.Info().Stringer("signal", s).Stringer("timeout", r.timeout).Msg("draining; a second signal ends at once")
		case err = <-failed:
			r.log.Error().Err(err).Msg("stopping because a part failed")
		}
	}
	if r.draining != nil {
		r.draining()
	}
	return errors.Join(err, r.stop(started, signals))
}

// start gives the steps that have to be stopped again. No step waits for a
// store or a client, so a signal can wait until all have started.
func (r runner) start(steps []step) (started []step, err error) {
	for i, s := range steps {
		if err := s.start(); err != nil {
			return steps[:i], err
		}
	}
	return steps, nil
}

var (
	errSecondSignal = errors.New("ended by a second signal before the stop was complete; what was answered 207 is safe in the journal")
	errTooSlow      = errors.New("could not stop within shutdown_timeout; what was answered 207 is safe in the journal")
)

// stop is bounded: it returns without waiting any longer at the end of the
// timeout and on a second signal. The process has to end then.
func (r runner) stop(started []step, signals <-chan os.Signal) error {
	begin := time.Now()
	grace, cancel := context.WithTimeout(context.Background(), r.timeout*3/4)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.stopAll(grace, started) }() // nobody waits for it after a second signal: the process ends
	hard := time.NewTimer(r.timeout)
	defer hard.Stop()
	select {
	case err := <-done:
		r.log.Info().Stringer("took", time.Since(begin)).Msg("stopped")
		return err
	case <-signals:
		return errSecondSignal
	case <-hard.C:
		return errTooSlow
	}
}

func (r runner) stopAll(ctx context.Context, started []step) error {
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		s := started[i]
		if s.stop == nil {
			continue
		}
		begin := time.Now()
		if err := s.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("cannot stop %s cleanly: %w", s.name, err))
		}
		r.log.Debug().Str("part", s.name).Stringer("took", time.Since(begin)).Msg("part stopped")
	}
	return errors.Join(errs...)
}
