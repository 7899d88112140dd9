package journal

import "golang.org/x/sys/unix"

func (f osFile) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(f.fd, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func (f osFile) Reserve(size int64) error {
	return unix.FcntlFstore(uintptr(f.fd), unix.F_PREALLOCATE, &unix.Fstore_t{
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size,
	})
}

// Datasync also flushes the drive's cache, which fsync on macOS does not.
func (f osFile) Datasync() error {
	for {
		if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_FULLFSYNC, 0); err != unix.EINTR {
			return err
		}
	}
}
