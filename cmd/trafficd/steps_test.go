package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// recordingSteps returns steps that record their starts and stops.
func recordingSteps(events *[]string, names ...string) []step {
	var steps []step
	for _, name := range names {
		steps = append(steps, step{
			name:  name,
			start: func() error { *events = append(*events, "start "+name); return nil },
			stop:  func(context.Context) error { *events = append(*events, "stop "+name); return nil },
		})
	}
	return steps
}

func TestStepsStopInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		signals := make(chan os.Signal, 2)
		r := runner{timeout: time.Minute, draining: func() { events = append(events, "draining") }, log: zerolog.Nop()}
		go func() { time.Sleep(time.Hour); signals <- syscall.SIGTERM }()
		require.NoError(t, r.run(recordingSteps(&events, "journal", "api"), signals, nil))
		require.Equal(t, []string{"start journal", "start api", "draining", "stop api", "stop journal"}, events)
	})
}

// TestLoggedDurationsAreNumbers checks that every "took" in the log is a number of milliseconds.
func TestLoggedDurationsAreNumbers(t *testing.T) {
	var log bytes.Buffer
	var events []string
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	require.NoError(t, runner{timeout: time.Minute, log: zerolog.New(&log)}.run(recordingSteps(&events, "journal"), signals, nil))
	require.Equal(t, 2, strings.Count(log.String(), `"took":`))
	require.NotContains(t, log.String(), `"took":"`)
}

func TestStepsAfterFailedStart(t *testing.T) {
	var events []string
	steps := recordingSteps(&events, "journal", "api", "never")
	steps[1].start = func() error { return errors.New("port in use") }
	err := runner{timeout: time.Minute, log: zerolog.Nop()}.run(steps, nil, nil)
	require.ErrorContains(t, err, "port in use")
	require.Equal(t, []string{"start journal", "stop journal"}, events)
}

func TestSignalWhileStarting(t *testing.T) {
	var events []string
	signals := make(chan os.Signal, 2)
	steps := recordingSteps(&events, "journal", "api")
	steps[0].start = func() error { signals <- syscall.SIGINT; return nil }
	require.NoError(t, runner{timeout: time.Minute, log: zerolog.Nop()}.run(steps, signals, nil))
	require.Equal(t, []string{"stop journal"}, events)
}

// TestSignalDuringSlowStart checks that a signal is not ignored until a step that takes long has
// started: run returns, and starts and stops nothing else.
func TestSignalDuringSlowStart(t *testing.T) {
	f := func(want time.Duration, also ...os.Signal) {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			signals := make(chan os.Signal, 2)
			steps := recordingSteps(&events, "operators", "journal", "api")
			release := make(chan struct{})
			steps[1].start = func() error { <-release; return nil }
			begin := time.Now()
			go func() {
				time.Sleep(time.Second)
				for _, s := range append([]os.Signal{syscall.SIGTERM}, also...) {
					signals <- s
				}
			}()
			require.NoError(t, runner{timeout: time.Minute, log: zerolog.Nop()}.run(steps, signals, nil))
			require.Equal(t, want, time.Since(begin))
			require.Equal(t, []string{"start operators"}, events)
			close(release)
		})
	}
	f(time.Second + startGrace)
	f(time.Second, syscall.SIGTERM)
}

func TestFailedPartStopsTheRest(t *testing.T) {
	var events []string
	failed := make(chan error, 1)
	failed <- errors.New("the listener failed")
	err := runner{timeout: time.Minute, log: zerolog.Nop()}.run(recordingSteps(&events, "a"), nil, failed)
	require.ErrorContains(t, err, "the listener failed")
	require.Equal(t, []string{"start a", "stop a"}, events)
}

// TestSignalAfterFailure checks that the first signal does not interrupt the shutdown after a
// failure, for example if the service manager also stops the daemon.
func TestSignalAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, failed := make(chan os.Signal, 2), make(chan error, 1)
		failed <- errors.New("the listener failed")
		stopped := false
		steps := []step{{name: "slow", start: func() error { return nil }, stop: func(context.Context) error {
			signals <- syscall.SIGTERM
			time.Sleep(3 * time.Second)
			stopped = true
			return nil
		}}}
		err := runner{timeout: time.Minute, log: zerolog.Nop()}.run(steps, signals, failed)
		require.ErrorContains(t, err, "the listener failed")
		require.NotErrorIs(t, err, errSecondSignal)
		require.True(t, stopped)
	})
}

func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soft := make(chan time.Duration, 1)
		release := make(chan struct{})
		begin := time.Now()
		steps := []step{{name: "slow", start: func() error { return nil }, stop: func(ctx context.Context) error {
			<-ctx.Done()
			soft <- time.Since(begin)
			<-release
			return nil
		}}}
		err := runner{timeout: 20 * time.Second, log: zerolog.Nop()}.stop(steps, nil, true)
		require.ErrorIs(t, err, errTooSlow)
		require.Equal(t, 20*time.Second, time.Since(begin))
		require.Equal(t, 15*time.Second, <-soft)
		close(release)
	})
}

func TestSecondSignalEndsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		steps := []step{{name: "slow", start: func() error { return nil }, stop: func(context.Context) error { <-release; return nil }}}
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		go func() { time.Sleep(3 * time.Second); signals <- syscall.SIGTERM }()
		begin := time.Now()
		err := runner{timeout: time.Minute, log: zerolog.Nop()}.run(steps, signals, nil)
		require.ErrorIs(t, err, errSecondSignal)
		require.Equal(t, 3*time.Second, time.Since(begin))
		close(release)
	})
}
