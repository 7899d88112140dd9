package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped by the error of TryLock when the lock is held.
var ErrLocked = errors.New("another process holds the lock")

// Lock locks the file at path. If the lock is held, Lock calls waiting once, unless it is nil, and
// waits until the lock is free or ctx is done. The lock is released when its holder dies.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for {
		unlock, err = TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return unlock, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		if !Sleep(ctx, 50*time.Millisecond) {
			return nil, fmt.Errorf("cannot wait for the lock %s: %w", path, context.Cause(ctx))
		}
	}
}

// TryLock locks the file at path without waiting. If the lock is held, the error wraps ErrLocked.
// unlock does not remove the file, because two processes could then hold the lock.
func TryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open lock file: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, fmt.Errorf("cannot lock %s: %w", path, err)
}
