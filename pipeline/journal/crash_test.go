package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/crashfs"
	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/lib/durable"
)

// TestCrashes kills the journal at random moments, by loss of power and by kill -9, with and
// without a faulty disk, and compares the recovered frames with the acknowledged ones.
func TestCrashes(t *testing.T) {
	const livesEach = 20
	lives := 4_000
	if needs.Long() {
		lives = 40_000
	}
	recovered, unknown, voided := 0, 0, 0
	for seed := range uint64(lives / livesEach) {
		w := newCrashWorld(t, seed)
		for range livesEach {
			w.live()
		}
		recovered += w.recovered
		unknown += w.unknown
		voided += w.voided
	}
	// The test proves nothing if these never occur.
	require.Greater(t, recovered, lives/2)
	require.Greater(t, unknown, lives/10)
	require.Greater(t, voided, lives/10)
}

// outcome is what the user of a frame knows about it.
type outcome byte

const (
	outcomeAcknowledged outcome = iota + 1
	outcomeUnknown
	outcomeVoided
)

// crashWorld is a disk that survives crashes, and the results that users of its journal received.
type crashWorld struct {
	t    *testing.T
	rng  *rand.Rand
	seed uint64
	fs   *memFS

	ids      uint64                  // of all frames so far; each frame contains its own
	outcomes map[uint64]outcome      // keyed by ID
	places   map[uint64]uint64       // seq → id, of acknowledged frames
	highest  uint64                  // newest acknowledged seq
	saved    map[string]cursorSave   // last successful save of each cursor
	failed   map[string][]cursorSave // failed saves after it; each may be on the disk

	recovered, unknown, voided int
}

type cursorSave struct {
	seq   uint64
	state string
}

func newCrashWorld(t *testing.T, seed uint64) *crashWorld {
	return &crashWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), seed: seed, fs: newMemFS(seed),
		outcomes: map[uint64]outcome{}, places: map[uint64]uint64{},
		saved: map[string]cursorSave{}, failed: map[string][]cursorSave{},
	}
}

// live opens the journal, checks it, uses it until the machine crashes, and keeps what survived on
// the disk.
func (w *crashWorld) live() {
	if w.rng.IntN(3) > 0 {
		w.fs.Budget = w.rng.IntN(60)
	}
	j, err := Open(testConfig(), []string{"a", "b"}, WithFS(w.fs))
	if err != nil {
		require.ErrorIs(w.t, err, crashfs.ErrPower, "seed %d", w.seed)
	} else {
		w.check(j)
		w.use(j)
		_ = j.Close() // fails if the power failed
	}
	w.fs = w.fs.crash(w.rng.IntN(3) > 0)
}

func (w *crashWorld) use(j *Journal) {
	if w.rng.IntN(2) == 0 {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 3))
		w.fs.SetFault(func(string, string) bool { return rng.IntN(12) == 0 })
	}
	for range w.rng.IntN(12) {
		if w.rng.IntN(3) == 0 {
			w.save(j)
		} else {
			w.enqueue(j)
		}
	}
}

// enqueue queues some frames together, so that they share commits, and records the outcome of each.
func (w *crashWorld) enqueue(j *Journal) {
	entries := make([]*durable.Entry, 1+w.rng.IntN(6))
	for i := range entries {
		w.ids++
		e := &durable.Entry{Data: payload(w.ids, 8+w.rng.IntN(3)*w.rng.IntN(3000))}
		if err := j.Enqueue(e); err != nil {
			w.outcomes[w.ids] = outcomeVoided
			continue
		}
		entries[i] = e
	}
	for _, e := range entries {
		if e != nil {
			w.note(idOf(e.Data), e.Seq, e.Wait())
		}
	}
}

func (w *crashWorld) note(id, seq uint64, err error) {
	switch {
	case err == nil:
		w.outcomes[id] = outcomeAcknowledged
		w.places[seq] = id
		w.highest = max(w.highest, seq)
	case errors.Is(err, durable.ErrVoided):
		w.outcomes[id] = outcomeVoided
		w.voided++
	default:
		require.ErrorIs(w.t, err, durable.ErrUnknown)
		w.outcomes[id] = outcomeUnknown
		w.unknown++
	}
}

func (w *crashWorld) save(j *Journal) {
	name := string("ab"[w.rng.IntN(2)])
	seq, _ := j.Cursor(name).Load()
	_, next := j.Bounds()
	seq += w.rng.Uint64N(next - seq + 1)
	s := cursorSave{seq: seq, state: fmt.Sprint(name, seq, w.rng.IntN(1000))}
	if err := j.Cursor(name).Save(s.seq, []byte(s.state)); err != nil {
		w.failed[name] = append(w.failed[name], s)
		return
	}
	w.saved[name] = s
	delete(w.failed, name)
}

// check reads everything. All acknowledged frames that a consumer still needs must exist, in order
// and without gaps. Voided frames, and frames that were never enqueued, must not exist.
func (w *crashWorld) check(j *Journal) {
	bytes := int64(0)
	for _, s := range j.segments {
		bytes += s.end
	}
	require.Equal(w.t, bytes, j.bytes, "seed %d", w.seed)
	oldest, next := j.Bounds()
	require.Greater(w.t, next, w.highest, "seed %d: acknowledged frames are missing", w.seed)
	r := j.Reader(0)
	for want := oldest; want < next; want++ {
		seq, frame, ok, err := r.TryNext(nil)
		if errors.Is(err, crashfs.ErrPower) {
			return
		}
		require.NoError(w.t, err, "seed %d", w.seed)
		require.True(w.t, ok)
		require.Equal(w.t, want, seq)
		id := idOf(frame)
		require.Equal(w.t, payload(id, len(frame)), frame)
		require.NotEqual(w.t, outcomeVoided, w.outcomes[id], "seed %d: voided frame %d is back at %d", w.seed, id, seq)
		require.NotZero(w.t, w.outcomes[id], "seed %d: frame %d was never enqueued", w.seed, id)
		if known, ok := w.places[seq]; ok {
			require.Equal(w.t, known, id, "seed %d: another frame at %d", w.seed, seq)
		}
		// A reader has seen the frame, so it must not disappear.
		w.outcomes[id], w.places[seq], w.highest = outcomeAcknowledged, id, max(w.highest, seq)
		w.recovered++
	}
	w.checkCursors(j, oldest)
}

func (w *crashWorld) checkCursors(j *Journal, oldest uint64) {
	for _, name := range []string{"a", "b"} {
		seq, state := j.Cursor(name).Load()
		got := cursorSave{seq, string(state)}
		if saved, ok := w.saved[name]; ok && got != saved {
			require.Contains(w.t, w.failed[name], got, "seed %d: cursor %s", w.seed, name)
		}
		require.LessOrEqual(w.t, oldest, seq, "seed %d: frames that %s needs are missing", w.seed, name)
		w.saved[name] = got // Open has made it durable
		delete(w.failed, name)
	}
}

// payload is n bytes that begin with id and differ from any other frame's.
func payload(id uint64, n int) []byte {
	b := make([]byte, n)
	binary.LittleEndian.PutUint64(b, id)
	for i := 8; i < n; i++ {
		b[i] = byte(id + uint64(i)*31)
	}
	return b
}

func idOf(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame) }

func testConfig() Config {
	c := DefaultConfig()
	c.Dir = "/journal"
	c.SegmentBytes = 16 << 10
	c.MaxFrameBytes = 12 << 10
	c.MaxBytes = 1 << 20
	return c
}
