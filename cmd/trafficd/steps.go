package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// step starts and stops a part of the daemon. stop returns once no goroutine of the part is
// running. When its context is done, it stops as fast as possible without losing anything that was
// accepted.
type step struct {
	name  string
	start func() error
	stop  func(context.Context) error
}

// runner starts steps in order, waits, and stops the started ones in reverse order.
type runner struct {
	timeout  time.Duration // for the shutdown; its graceful phase takes at most three quarters of it
	draining func()        // called before anything is stopped; may be nil
	log      zerolog.Logger

	hangups <-chan os.Signal // SIGHUP calls reload; may be nil
	reload  func()
}

var (
	errSecondSignal = errors.New("exited on a second signal before the shutdown was complete; " +
		"everything acknowledged with 207 is in the journal")
	errAbandoned = errors.New("a part did not start in time after a signal")
	errTooSlow   = errors.New("could not stop within shutdown_timeout; everything acknowledged with 207 is in the journal")
)

// startGrace is how long a signal during the start waits for the step that is starting, so that the
// steps before it can be stopped.
const startGrace = 2 * time.Second

// run starts the steps, waits for a signal or, on failed, the error of a part that cannot continue,
// and stops the started steps. It returns nil after a signal and a complete shutdown. After a
// signal during the start, no further step is started. A step that takes too long is then
// abandoned, and the process must exit: nothing has been accepted yet, and what is delivered in
// that moment is resolved after the next start, as after a crash.
func (r runner) run(steps []step, signals <-chan os.Signal, failed <-chan error) error {
	var started []step
	var err error
	signalled := false
	for _, s := range steps {
		if signalled, err = r.start(s, signals); err != nil {
			break
		}
		started = append(started, s)
		if signalled {
			break
		}
	}
	if errors.Is(err, errAbandoned) {
		r.log.Warn().Msg("exiting before the start was complete; nothing has been accepted")
		return nil
	}
	for running := err == nil && !signalled; running; {
		select {
		case <-r.hangups:
			r.reload()
			continue
		case s := <-signals:
			signalled = true
			r.announce(s)
		case err = <-failed:
			r.log.Error().Err(err).Msg("stopping because a part failed")
		}
		running = false
	}
	if r.draining != nil {
		r.draining()
	}
	return errors.Join(err, r.stop(started, signals, signalled))
}

// start starts a step and reports whether a signal has been received in the meantime. It returns
// errAbandoned if the step has not started soon after the signal.
func (r runner) start(s step, signals <-chan os.Signal) (signalled bool, err error) {
	done := make(chan error, 1)
	go func() { done <- s.start() }() // abandoned only if the process exits
	select {
	case err := <-done:
		select {
		case s := <-signals:
			r.announce(s)
			return true, err
		default:
			return false, err
		}
	case s := <-signals:
		r.announce(s)
	}
	select {
	case err := <-done:
		return true, err
	case <-signals: // the second one
	case <-time.After(startGrace):
	}
	return true, errAbandoned
}

func (r runner) announce(s os.Signal) {
	r.log.Info().Stringer("signal", s).Stringer("timeout", r.timeout).Msg("draining; a second signal exits immediately")
}

// stop stops the steps. After the timeout or on a second signal, it returns even if steps are still
// running; the process must then exit. signalled reports whether the first signal has been
// received.
func (r runner) stop(started []step, signals <-chan os.Signal, signalled bool) error {
	begin := time.Now()
	grace, cancel := context.WithTimeout(context.Background(), r.timeout*3/4)
	defer cancel()
	done := make(chan error, 1)
	go func() { // not awaited after the timeout or a second signal: the process exits
		var errs []error
		for _, s := range slices.Backward(started) {
			begin := time.Now()
			if err := s.stop(grace); err != nil {
				errs = append(errs, fmt.Errorf("cannot stop the %s cleanly: %w", s.name, err))
			}
			r.log.Debug().Str("part", s.name).Dur("took", time.Since(begin)).Msg("part stopped")
		}
		done <- errors.Join(errs...)
	}()
	hard := time.NewTimer(r.timeout)
	defer hard.Stop()
	for {
		select {
		case err := <-done:
			r.log.Info().Dur("took", time.Since(begin)).Msg("stopped")
			return err
		case s := <-signals:
			if signalled {
				return errSecondSignal
			}
			signalled = true
			r.announce(s)
		case <-hard.C:
			return errTooSlow
		}
	}
}

// notifyStep notifies systemd when the daemon starts to serve clients, and when it begins to stop
// (see sd_notify(3)). In between, it notifies the watchdog each time that alive returns; alive
// should need what the daemon needs, so that it hangs if the daemon does. Without systemd,
// notifyStep does nothing.
func notifyStep(log zerolog.Logger, alive func()) step {
	notify := func(state string) {
		path := os.Getenv("NOTIFY_SOCKET")
		if path == "" {
			return
		}
		c, err := net.Dial("unixgram", path)
		if err == nil {
			_, err = io.WriteString(c, state)
			_ = c.Close()
		}
		if err != nil {
			log.Warn().Err(err).Msg("cannot notify systemd")
		}
	}
	done := make(chan struct{})
	watch := func(every time.Duration) { // not awaited, because alive may hang
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				alive()
				notify("WATCHDOG=1")
			}
		}
	}
	return step{
		"systemd notification",
		func() error {
			notify("READY=1")
			limit, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
			if err == nil && limit > 0 && os.Getenv("WATCHDOG_PID") == strconv.Itoa(os.Getpid()) {
				go watch(time.Duration(limit) * time.Microsecond / 2)
			}
			return nil
		},
		func(context.Context) error { close(done); notify("STOPPING=1"); return nil },
	}
}
