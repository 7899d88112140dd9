package spool

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"trafficd/pipeline/lib/replace"
	"trafficd/schemas/contract"
)

// key is a hash of what identifies a measurement: detector, type and interval.
type key uint64

func keyOf(m *contract.Measurement) key {
	var b [256]byte
	text := append(append(append(b[:0], m.DetectorCode...), 0), m.MeasureTypeCode...)
	text = binary.BigEndian.AppendUint64(text, uint64(m.TimestampFrom.UnixNano()))
	text = binary.BigEndian.AppendUint64(text, uint64(m.TimestampTo.UnixNano()))
	return key(xxhash.Sum64(text))
}

// memory is what was published lately: the hashes of values by key. A value is forgotten when it
// has not been published for as long as it took to publish two to four times as many others. A
// value that is published all the time is remembered however old it is.
type memory struct {
	young, old map[key]uint64
}

// minimum is the number of values up to which nothing is forgotten.
const minimum = 4096

func (m *memory) has(k key, value uint64) bool {
	if v, ok := m.young[k]; ok {
		return v == value
	}
	v, ok := m.old[k]
	if ok && v == value {
		m.set(k, value)
	}
	return ok && v == value
}

func (m *memory) set(k key, value uint64) {
	if m.young == nil {
		m.young, m.old = map[key]uint64{}, map[key]uint64{}
	}
	m.young[k] = value
}

// limit forgets values. published is the number of values in a publication.
func (m *memory) limit(published int) {
	if len(m.young) > 2*published && len(m.young) > minimum {
		clear(m.old)
		m.young, m.old = m.old, m.young
	}
}

const (
	entrySize    = 16
	checksumSize = 8
)

func appendEntry(b []byte, k key, value uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(k)), value)
}

// learn reads entries, followed by a checksum of checked, which ends with the entries.
func (m *memory) learn(entries, checked, checksum []byte) error {
	if len(entries)%entrySize != 0 || xxhash.Sum64(checked) != binary.BigEndian.Uint64(checksum) {
		return errDamaged
	}
	for ; len(entries) > 0; entries = entries[entrySize:] {
		m.set(key(binary.BigEndian.Uint64(entries)), binary.BigEndian.Uint64(entries[8:]))
	}
	return nil
}

// recall learns what a publication that was not accepted yet contains.
func (s *Spool) recall(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		b, err := frame(r)
		switch {
		case err != nil:
			return err
		case len(b) > 0:
			continue
		}
		if b, err = frame(r); err == nil && len(b) < checksumSize {
			err = errDamaged
		}
		if err != nil {
			return err
		}
		list := b[:len(b)-checksumSize]
		return s.memory.learn(list, list, b[len(list):])
	}
}

const headerSize = len(magic) + 8

func (s *Spool) readState() error {
	path := filepath.Join(s.dir, stateFile)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(b) < headerSize+checksumSize || !bytes.HasPrefix(b, []byte(magic)):
		err = errDamaged
	default:
		end := len(b) - checksumSize
		s.sent = binary.BigEndian.Uint64(b[len(magic):])
		err = s.memory.learn(b[headerSize:end], b[:end], b[end:])
	}
	if err != nil {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return err
}

// writeState writes the state after a publication was accepted. It also contains what later
// publications contain, whose files will be read again.
func (s *Spool) writeState(sent uint64) error {
	return replace.File(filepath.Join(s.dir, stateFile), 0o600, func(w io.Writer) error {
		out, sum := bufio.NewWriterSize(w, 64<<10), xxhash.New()
		both := io.MultiWriter(out, sum)
		_, err := both.Write(binary.BigEndian.AppendUint64([]byte(magic), sent))
		var b [entrySize]byte
		for _, part := range []map[key]uint64{s.memory.old, s.memory.young} { // learn keeps the last value
			for k, value := range part {
				if err == nil {
					_, err = both.Write(appendEntry(b[:0], k, value))
				}
			}
		}
		if err == nil {
			_, err = out.Write(binary.BigEndian.AppendUint64(nil, sum.Sum64()))
		}
		return errors.Join(err, out.Flush())
	})
}
