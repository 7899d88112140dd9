package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"trafficd/pipeline/lib/durable"
)

const (
	// MaxStateBytes is the maximum length of the state of a cursor.
	MaxStateBytes = 1 << 20

	cursorMagic     = "trjcur\r\n"
	cursorVersion   = 1
	cursorSuffix    = ".cursor"
	slotHeaderBytes = 40
	slotBytes       = blockBytes + MaxStateBytes // whole blocks, so that a torn write of one slot cannot damage the other
)

var consumerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Cursor is the position of one consumer. It is safe for concurrent use.
type Cursor struct {
	journal *Journal
	name    string
	path    string
	seq     atomic.Uint64 // first frame that the consumer still needs

	mu     sync.Mutex
	file   File
	slot   int    // slot of the last save; the next save uses the other one
	gen    uint64 // generation of the last save
	state  []byte // as last saved
	buf    []byte // reused by write
	closed bool
}

// Load returns the first frame that the consumer still needs, and a copy of the state saved with
// it. A new consumer starts at the oldest frame, without state. If frames were deleted while the
// consumer was not passed to Open, seq is the oldest frame, but state is the saved one.
func (c *Cursor) Load() (seq uint64, state []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seq.Load(), slices.Clone(c.state)
}

// Save makes seq, the first frame still needed, and state durable. Then it deletes the segments
// that no consumer needs. seq must not decrease and must not exceed the seq of the next frame;
// state must not exceed MaxStateBytes. After an error, the disk contains the last position saved
// successfully or one whose Save failed since then; Save may be called again.
func (c *Cursor) Save(seq uint64, state []byte) error {
	if err := c.save(seq, state); err != nil {
		return fmt.Errorf("cannot save cursor %s at frame %d: %w", c.name, seq, err)
	}
	c.journal.collect()
	return nil
}

func (c *Cursor) save(seq uint64, state []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, next := c.journal.Bounds()
	switch {
	case c.closed:
		return durable.ErrClosed
	case seq < c.seq.Load():
		return fmt.Errorf("the cursor is at frame %d and cannot move back", c.seq.Load())
	case seq > next:
		return fmt.Errorf("the newest durable frame is %d", next-1)
	case len(state) > MaxStateBytes:
		return fmt.Errorf("the state has %d bytes, but the maximum is %d", len(state), MaxStateBytes)
	}
	s := slot{gen: c.gen + 1, seq: seq, state: state}
	if err := c.write(1-c.slot, s); err != nil {
		c.journal.counters.cursorErrors.Inc()
		return err
	}
	c.gen, c.slot = s.gen, 1-c.slot
	c.state = append(c.state[:0], state...)
	c.seq.Store(seq)
	return nil
}

// write overwrites and syncs one slot. The other slot remains valid, even after a crash.
func (c *Cursor) write(slot int, s slot) error {
	c.buf = s.encode(c.buf[:0])
	if _, err := c.file.WriteAt(c.buf, int64(slot)*slotBytes); err != nil {
		return fmt.Errorf("cannot write %s: %w", c.path, err)
	}
	if err := c.file.Datasync(); err != nil {
		return fmt.Errorf("cannot sync %s: %w", c.path, err)
	}
	return nil
}

// clear zeroes the header of a slot unless the slot is valid. An invalid slot may be a mix of
// failed saves of the previous process, which the first bytes of the next Save could make valid.
func (c *Cursor) clear(slot int) error {
	if _, valid, err := readSlot(c.file, c.path, slot); valid || err != nil {
		return err
	}
	if _, err := c.file.WriteAt(make([]byte, slotHeaderBytes), int64(slot)*slotBytes); err != nil {
		return fmt.Errorf("cannot write %s: %w", c.path, err)
	}
	return nil
}

func (c *Cursor) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.file.Close()
}

func (j *Journal) openCursors(consumers []string) error {
	oldest := uint64(1)
	if len(j.segments) > 0 {
		oldest = j.segments[0].first
	}
	for _, name := range consumers {
		if !consumerName.MatchString(name) {
			return fmt.Errorf("invalid consumer name %q: must be 1 to 64 characters a-z, 0-9, _ and -, starting with a letter or digit", name)
		}
		if j.cursors[name] != nil {
			return fmt.Errorf("duplicate consumer %s", name)
		}
		c, err := j.openCursor(name, oldest)
		if err != nil {
			return err
		}
		j.cursors[name] = c
		seq := c.seq.Load()
		if seq > j.durable+1 {
			return &CorruptError{Path: c.path, Reason: fmt.Sprintf(
				"the cursor is at frame %d, but the segments end with frame %d: acknowledged frames are missing", seq, j.durable)}
		}
		if seq < oldest { // the consumer was not configured for a while
			j.log.Warn().Str("consumer", c.name).Uint64("from", seq).Uint64("to", oldest-1).
				Msg("frames that this consumer never read were deleted while it was not configured")
			c.seq.Store(oldest)
		}
	}
	return nil
}

func (j *Journal) openCursor(name string, oldest uint64) (*Cursor, error) {
	c := &Cursor{journal: j, name: name, path: filepath.Join(j.cfg.Dir, name+cursorSuffix)}
	file, err := j.fs.Open(c.path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		c.gen = 1
		c.seq.Store(oldest)
		c.file, err = createFile(j.fs, j.cfg.Dir, "", c.path, func(f File) error {
			for at := int64(0); at < 2*slotBytes; at += blockBytes { // write zeros to allocate the blocks now
				if _, err := f.WriteAt(zeros[:], at); err != nil {
					return err
				}
			}
			_, err := f.WriteAt(slot{gen: c.gen, seq: oldest}.encode(nil), 0)
			return err
		})
		return c, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open cursor file %s: %w", c.path, err)
	}
	c.file = file
	s, at, err := newestSlot(c.file, c.path)
	if err == nil {
		c.slot, c.gen, c.state = at, s.gen, s.state
		c.seq.Store(s.seq)
		err = c.clear(1 - at)
	}
	if err == nil {
		// If the previous process died after a failed sync, the slot may exist only in the page
		// cache. It must be durable before the next Save overwrites the other slot.
		err = c.write(at, s)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return c, nil
}

// slot is one save in a cursor file; doc.go shows its layout.
type slot struct {
	gen   uint64 // number of saves; never 0
	seq   uint64
	state []byte
}

func (s slot) encode(dst []byte) []byte {
	dst = slices.Grow(dst, slotHeaderBytes+len(s.state))
	dst = append(dst, cursorMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, cursorVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.state)))
	dst = binary.LittleEndian.AppendUint64(dst, s.gen)
	dst = binary.LittleEndian.AppendUint64(dst, s.seq)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(slotSum(dst, s.state)))
	return append(dst, s.state...)
}

func slotSum(header, state []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, state)
}

// newestSlot returns the valid slot with the higher generation, and its index. A crash during Save
// leaves at most one torn slot, so it is an error if both are invalid.
func newestSlot(file File, path string) (newest slot, at int, err error) {
	for i := range 2 {
		s, ok, err := readSlot(file, path, i)
		if err != nil {
			return slot{}, 0, err
		}
		if ok && s.gen > newest.gen {
			newest, at = s, i
		}
	}
	if newest.gen == 0 {
		return slot{}, 0, &CorruptError{Path: path, Reason: "neither slot is valid"}
	}
	return newest, at, nil
}

// readSlot reads slot i. ok is false if the slot is not valid.
func readSlot(file File, path string, i int) (s slot, ok bool, err error) {
	size, err := file.Size()
	if err != nil {
		return s, false, fmt.Errorf("cannot stat %s: %w", path, err)
	}
	from := int64(i) * slotBytes
	if from+slotHeaderBytes > size {
		return s, false, nil
	}
	header := make([]byte, slotHeaderBytes)
	if err := readFull(file, header, from); err != nil {
		return s, false, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if string(header[:8]) != cursorMagic {
		return s, false, nil
	}
	// After a torn write the version is 0 or cursorVersion.
	if v := binary.LittleEndian.Uint32(header[8:]); v > cursorVersion {
		return s, false, &VersionError{Path: path, Version: v}
	}
	length := int64(binary.LittleEndian.Uint32(header[12:]))
	if length > MaxStateBytes || from+slotHeaderBytes+length > size {
		return s, false, nil
	}
	s = slot{gen: binary.LittleEndian.Uint64(header[16:]), seq: binary.LittleEndian.Uint64(header[24:]), state: make([]byte, length)}
	if err := readFull(file, s.state, from+slotHeaderBytes); err != nil {
		return s, false, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return s, uint64(slotSum(header[:32], s.state)) == binary.LittleEndian.Uint64(header[32:]), nil
}
