package receipts

import (
	"os"

	"golang.org/x/sys/unix"
)

// reserve allocates disk space for the next bytes of a file, without changing its size.
func reserve(f *os.File, bytes int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), bytes)
}
