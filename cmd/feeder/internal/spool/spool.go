// Package spool keeps the measurements of a feed on disk until the daemon has accepted them, and
// remembers what was published, so that a value that is published again is not sent again.
//
//	Put ─▶ 17.batches (fsync, rename) ─▶ POST of each batch, 207 ─▶ Done: sent (fsync, rename) ─▶ remove
//
// After a crash at any point, the batches of a publication are sent as they were written, with the
// same Idempotency-Key, or have been sent. A publication is in the spool as a whole or not at all.
package spool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"

	"trafficd/pipeline/lib/replace"
	"trafficd/schemas/contract"
)

const (
	// MaxItems is the number of items in a batch, the default of pipeline.decode.batch_limit.
	MaxItems = 14_000

	// maxBody is the size at which a batch of unusually long items is closed early, well below the
	// daemon's limits of 16 MiB compressed and 64 MiB decompressed.
	maxBody = 12 << 20

	extension = ".batches"
	stateFile = "sent"
	magic     = "feeder 1"
)

// Spool is the spool of one feed. Put may be called at the same time as Next, Batches and Done.
type Spool struct {
	dir      string
	maxBytes int64
	wake     chan struct{} // has a value after Put
	step     func(string)  // called after each change of a file; set by tests

	mu      sync.Mutex // guards the fields below
	memory  memory
	last    uint64 // number of the newest publication
	sent    uint64 // number of the newest publication whose batches were accepted
	pending []publication
}

// publication is a file with batches that have not been accepted yet.
type publication struct {
	number uint64
	bytes  int64
	since  time.Time
}

// Open opens or creates a spool.
func Open(dir string, maxBytes int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the spool: %w", err)
	}
	s := &Spool{dir: dir, maxBytes: maxBytes, wake: make(chan struct{}, 1), step: func(string) {}}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("cannot read the spool: %w; repair the disk, or move the file away: "+
			"its measurements are then sent again if they are still published, and lost if not", err)
	}
	return s, nil
}

func (s *Spool) load() error {
	if err := s.readState(); err != nil {
		return err
	}
	s.last = s.sent
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+extension))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		number, err := strconv.ParseUint(filepath.Base(name[:len(name)-len(extension)]), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: unknown file", name)
		}
		if number <= s.sent { // the machine has stopped before the removal was durable
			if err := os.Remove(name); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if err := s.recall(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.pending, s.last = append(s.pending, publication{number, info.Size(), info.ModTime()}), number
	}
	if len(s.pending) > 0 {
		s.wake <- struct{}{}
	}
	return nil
}

// Bytes returns the size of the measurements that were not accepted yet.
func (s *Spool) Bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		n += p.bytes
	}
	return n
}

// Full reports whether the feed must not be pulled. What is in the spool is never discarded.
func (s *Spool) Full() bool { return s.Bytes() >= s.maxBytes }

// Oldest returns when the oldest publication that was not accepted yet was written, or the zero
// time if there is none.
func (s *Spool) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return time.Time{}
	}
	return s.pending[0].since
}

// Known reports whether the value of the measurement's detector, type and interval was already put
// into the spool.
func (s *Spool) known(k key, value uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.has(k, value)
}

// Put calls produce, which calls add for each measurement of a publication. add leaves out those
// that were added before with the same value, and reports whether it was a new one. Put returns
// the number of the new ones. If produce returns an error, none of them is in the spool.
func (s *Spool) Put(produce func(add func(*contract.Measurement) (bool, error)) error) (added int, err error) {
	s.mu.Lock()
	number := s.last + 1
	s.mu.Unlock()
	w := &writer{seen: map[key]uint64{}}
	size := int64(0)
	err = replace.File(s.path(number), 0o600, func(file io.Writer) error {
		out := bufio.NewWriterSize(file, 64<<10)
		w.out = out
		repeated := 0
		err := produce(func(m *contract.Measurement) (bool, error) {
			k, value := keyOf(m), xxhash.Sum64String(string(m.Value))
			if s.known(k, value) {
				repeated++
				return false, nil
			}
			w.seen[k] = value
			return true, w.add(m)
		})
		if err != nil {
			return err
		}
		added = w.added
		s.mu.Lock()
		s.memory.limit(added + repeated)
		s.mu.Unlock()
		if added == 0 {
			return errNothing
		}
		size, err = w.finish()
		return errors.Join(err, out.Flush())
	})
	if err != nil {
		if errors.Is(err, errNothing) {
			err = nil
		}
		return 0, err
	}
	s.step("written")
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, value := range w.seen {
		s.memory.set(k, value)
	}
	s.last, s.pending = number, append(s.pending, publication{number, size, time.Now()})
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return added, nil
}

var errNothing = errors.New("nothing new")

// Next returns the number of the oldest publication that was not accepted yet. It waits for one.
func (s *Spool) Next(ctx context.Context) (number uint64, err error) {
	for {
		s.mu.Lock()
		if len(s.pending) > 0 {
			number = s.pending[0].number
		}
		s.mu.Unlock()
		if number > 0 {
			return number, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Batches calls post with each batch of a publication: a request body, compressed with gzip.
func (s *Spool) Batches(number uint64, post func(n int, body []byte) error) error {
	f, err := os.Open(s.path(number))
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for n := 0; ; n++ {
		body, err := frame(r)
		if err != nil || len(body) == 0 {
			return err
		}
		if err := post(n, body); err != nil {
			return err
		}
	}
}

// Done records that all batches of the oldest publication were accepted.
func (s *Spool) Done(number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writeState(number); err != nil {
		return fmt.Errorf("cannot write the state of the spool: %w", err)
	}
	s.sent, s.pending = number, s.pending[1:]
	s.step("state")
	err := os.Remove(s.path(number))
	s.step("removed")
	return err
}

func (s *Spool) path(number uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016d%s", number, extension))
}

// writer writes the file of a publication: frames with batches, an empty one, and one with the keys
// and values of the measurements.
type writer struct {
	out   io.Writer
	size  int64
	seen  map[key]uint64
	added int

	body   []byte
	items  int
	packed bytes.Buffer
	gzip   *gzip.Writer
}

func (w *writer) add(m *contract.Measurement) error {
	if w.items == MaxItems || len(w.body) > maxBody {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.items == 0 {
		w.body = append(w.body[:0], `{"measurements":[`...)
	} else {
		w.body = append(w.body, ',')
	}
	w.body = m.AppendJSON(w.body)
	w.items++
	w.added++
	return nil
}

func (w *writer) flush() error {
	w.packed.Reset()
	if w.gzip == nil {
		w.gzip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for invalid levels
	}
	w.gzip.Reset(&w.packed)
	_, err := w.gzip.Write(append(w.body, `]}`...))
	if err = errors.Join(err, w.gzip.Close()); err != nil {
		return err
	}
	w.items = 0
	return w.frame(w.packed.Bytes())
}

func (w *writer) finish() (size int64, err error) {
	if err := errors.Join(w.flush(), w.frame(nil)); err != nil {
		return 0, err
	}
	list := make([]byte, 0, entrySize*len(w.seen)+checksumSize)
	for k, value := range w.seen {
		list = appendEntry(list, k, value)
	}
	err = w.frame(binary.BigEndian.AppendUint64(list, xxhash.Sum64(list)))
	return w.size, err
}

func (w *writer) frame(b []byte) error {
	w.size += int64(4 + len(b))
	_, err := w.out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	if err == nil {
		_, err = w.out.Write(b)
	}
	return err
}

// maxFrame is more than the keys of the largest publication take.
const maxFrame = 1 << 30

func frame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, noEOF(err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, errDamaged
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, noEOF(err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

var errDamaged = errors.New("the file is damaged")
