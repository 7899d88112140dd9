package journal

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/durable"
)

// TestModel applies random operations to a journal and to a slice, and compares them.
func TestModel(t *testing.T) {
	for seed := range uint64(30) {
		m := newModel(t, seed)
		for range 150 {
			m.step()
		}
		require.NoError(t, m.journal.Close())
	}
}

// model is what a journal should be: frames[i] is frame i+1.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	fs      *memFS
	journal *Journal
	frames  [][]byte
	cursors map[string]cursorSave
	reader  *Reader
	read    uint64 // the reader's next frame
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 4)), fs: newMemFS(seed),
		cursors: map[string]cursorSave{"a": {seq: 1}, "b": {seq: 1}},
	}
	m.open()
	return m
}

func (m *model) open() {
	m.journal = mustOpen(m.t, testConfig(), m.fs, "a", "b")
	m.read = m.rng.Uint64N(uint64(len(m.frames)) + 1)
	m.reader = m.journal.Reader(m.read)
}

func (m *model) step() {
	switch n := m.rng.IntN(20); {
	case n < 8:
		m.append()
	case n < 14:
		m.readOn()
	case n < 18:
		m.save()
	case n < 19:
		m.reopen()
	default:
		m.compareLast()
	}
	m.compareBounds()
}

func (m *model) append() {
	entries := make([]durable.Entry, 1+m.rng.IntN(4))
	for i := range entries {
		frame := make([]byte, m.rng.IntN(1+m.rng.IntN(testConfig().MaxFrameBytes)))
		for k := range frame {
			frame[k] = byte(m.rng.Uint32())
		}
		entries[i].Data = frame
		require.NoError(m.t, m.journal.Enqueue(&entries[i]))
		m.frames = append(m.frames, frame)
		require.EqualValues(m.t, len(m.frames), entries[i].Seq)
	}
	for i := range entries {
		require.NoError(m.t, entries[i].Wait())
	}
	if m.behind() > 512<<10 { // far from full
		m.saveAt("a", uint64(len(m.frames)))
		m.saveAt("b", uint64(len(m.frames)))
	}
}

func (m *model) behind() (bytes int) {
	oldest, _ := m.journal.Bounds()
	for _, f := range m.frames[oldest-1:] {
		bytes += len(f)
	}
	return bytes
}

func (m *model) readOn() {
	oldest, _ := m.journal.Bounds()
	for range m.rng.IntN(10) {
		m.read = max(m.read, oldest)
		seq, frame, ok, err := m.reader.TryNext(nil)
		require.NoError(m.t, err)
		require.Equal(m.t, m.read <= uint64(len(m.frames)), ok)
		if !ok {
			return
		}
		require.Equal(m.t, m.read, seq)
		require.Equal(m.t, len(m.frames[seq-1]), len(frame))
		require.Equal(m.t, string(m.frames[seq-1]), string(frame))
		m.read++
	}
}

func (m *model) save() {
	name := string("ab"[m.rng.IntN(2)])
	from := m.cursors[name].seq
	m.saveAt(name, from+m.rng.Uint64N(uint64(len(m.frames))+2-from))
}

func (m *model) saveAt(name string, seq uint64) {
	seq = max(seq, m.cursors[name].seq)
	s := cursorSave{seq: seq, state: string(make([]byte, m.rng.IntN(2000)))}
	require.NoError(m.t, m.journal.Cursor(name).Save(s.seq, []byte(s.state)))
	m.cursors[name] = s
	m.compareDeleted()
}

// reopen stops the journal in one of three ways and opens it again; nothing may change.
func (m *model) reopen() {
	require.NoError(m.t, m.journal.Close())
	if n := m.rng.IntN(3); n > 0 {
		m.fs = m.fs.crash(n == 1)
	}
	m.open()
	for name, want := range m.cursors {
		seq, state := m.journal.Cursor(name).Load()
		require.Equal(m.t, want, cursorSave{seq, string(state)})
	}
}

func (m *model) compareLast() {
	seq, frame, err := m.journal.Last()
	require.NoError(m.t, err)
	require.EqualValues(m.t, len(m.frames), seq)
	if seq > 0 {
		require.Equal(m.t, string(m.frames[seq-1]), string(frame))
	}
}

func (m *model) compareBounds() {
	oldest, next := m.journal.Bounds()
	require.EqualValues(m.t, len(m.frames)+1, next)
	needed := min(m.cursors["a"].seq, m.cursors["b"].seq)
	require.LessOrEqual(m.t, oldest, needed)
}

func (m *model) compareDeleted() {
	needed := min(m.cursors["a"].seq, m.cursors["b"].seq)
	segments := m.journal.segments
	if len(segments) > 1 && !segments[len(segments)-1].empty() {
		require.Greater(m.t, segments[1].first, needed, "a segment that no consumer needs is left")
	}
}
