package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock locks the directory of a journal for Edit. It fails with an error that wraps ErrLocked if a
// daemon has the directory open.
func Lock(dir string, opts ...Option) (io.Closer, error) {
	lock, err := newJournal(Config{}, opts).fs.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("cannot lock journal directory %s: %w", dir, err)
	}
	return lock, nil
}

// LockShared keeps daemons from opening the directory of a journal, which others may read too. It
// fails with an error that wraps ErrLocked if a daemon has the directory open. A directory without
// a lock file, such as a copy, is not locked.
func LockShared(dir string) (io.Closer, error) {
	file, err := os.Open(filepath.Join(dir, lockName))
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return io.NopCloser(nil), nil
	case err == nil:
		err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(ErrLocked, file.Close())
	case err != nil:
		return nil, fmt.Errorf("cannot lock journal directory %s: %w", dir, errors.Join(err, file.Close()))
	}
	return file, nil
}

// Edit changes frames in a directory that the caller has locked. It calls edit with each frame from
// seq from on, in order; edit may change the bytes of data, but must not keep data.
//
// Each segment with such frames is replaced by a copy, which needs as much space on the disk. That
// is atomic, and a later segment is replaced after an earlier one. So after a crash or an error,
// each frame is either unchanged or completely changed, and none before a changed one is unchanged.
// Edit verifies the checksums of the segments that it replaces. After an error about damage, all
// segments before the damaged one are replaced: call Verify first.
func Edit(dir string, from uint64, edit func(seq uint64, data []byte), opts ...Option) (err error) {
	fs := newJournal(Config{}, opts).fs
	segments, err := openSegments(fs, dir, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer closeSegments(segments)
	for i, s := range segments {
		next := uint64(0) // first frame of the next segment, 0 if there is none
		if i+1 < len(segments) {
			if next = segments[i+1].first; next <= from {
				continue
			}
		}
		file, err := createFile(fs, dir, "", s.path, func(f File) error { return s.edit(f, from, next, edit) })
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// edit writes a copy of the segment with the edited frames to file. It keeps the places of the
// frames, their numbers and the salt.
func (s *segment) edit(file File, from, next uint64, edit func(seq uint64, data []byte)) error {
	var w walker
	w.reset(s.file, s.path, s.segmentHeader, s.end)
	err := w.chunks(0, s.end, func(at int64, p []byte) error {
		_, err := file.WriteAt(p, at)
		return err
	})
	if err != nil {
		return err
	}
	var buf []byte
	var header [frameHeaderBytes]byte
	for next == 0 || w.seq < next {
		if buf, err = w.read(buf[:0]); err != nil {
			break
		}
		seq := w.seq - 1
		if seq < from {
			continue
		}
		edit(seq, buf)
		h := frameHeader{seq: seq, index: w.index - 1}
		h.encode(&header, s.salt, buf)
		at := w.off - int64(len(buf))
		_, headerErr := file.WriteAt(header[:], at-frameHeaderBytes)
		_, dataErr := file.WriteAt(buf, at)
		if err := errors.Join(headerErr, dataErr); err != nil {
			return err
		}
	}
	if next == 0 && isCorrupt(err) { // the end of the journal, or damage
		_, err = w.tornBytes()
	}
	return err
}
