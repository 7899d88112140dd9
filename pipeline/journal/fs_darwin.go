package journal

import "golang.org/x/sys/unix"

func (f osFile) Reserve(size int64) error {
	return unix.FcntlFstore(uintptr(f.fd), unix.F_PREALLOCATE, &unix.Fstore_t{
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size,
	})
}

// Datasync also flushes the drive's cache (F_FULLFSYNC).
func (f osFile) Datasync() error { return f.Sync() }
