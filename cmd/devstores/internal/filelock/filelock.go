// Package filelock is a lock between processes that its holder's death releases.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld is what Try returns when another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// Take waits for the lock file path until ctx ends; waiting (may be nil) is called once if it has to. The lock goes with its holder's death.
func Take(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for {
		unlock, err = Try(path)
		if !errors.Is(err, ErrHeld) {
			return unlock, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot wait for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Try takes the lock file path or returns an error that is ErrHeld. The file itself stays: removing it would let two in.
func Try(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open a lock file: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("cannot lock %s: %w", path, ErrHeld)
	}
	return nil, fmt.Errorf("cannot lock %s: %w", path, err)
}
