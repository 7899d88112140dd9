package journal

import "golang.org/x/sys/unix"

func (f osFile) Reserve(size int64) error {
	return unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

func (f osFile) Datasync() error {
	for {
		if err := unix.Fdatasync(f.fd); err != unix.EINTR {
			return err
		}
	}
}
