package inspect

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// NoEnd is the end of a Gap that no intact frame follows.
const NoEnd = math.MaxUint64

// Gap is a run of frames that cannot be read. Later frames may be intact.
type Gap struct {
	From, To      uint64    // To is NoEnd if no intact frame follows
	After, Before time.Time // when its neighbours were received; zero if there is none
	Err           error     // of the first frame
}

// Error implements error.
func (g *Gap) Error() string { return fmt.Sprintf("cannot read %s: %v", g.Range(), g.Err) }

// Unwrap returns the reason.
func (g *Gap) Unwrap() error { return g.Err }

// Range names the frames.
func (g *Gap) Range() string {
	switch g.To {
	case g.From:
		return fmt.Sprintf("frame %d", g.From)
	case NoEnd:
		return fmt.Sprintf("frames from %d on", g.From)
	}
	return fmt.Sprintf("frames %d to %d", g.From, g.To)
}

// Frames returns the frames from seq on and verifies their checksums. After an error that is a *Gap, it
// continues with the next intact frame; any other error is the last. A frame is valid until the next
// one. A torn tail, or a commit that a daemon is writing, ends the sequence without an error.
func (f *Folder) Frames(seq uint64) iter.Seq2[journal.Frame, error] {
	return func(yield func(journal.Frame, error) bool) {
		in, err := f.silent().Inspect()
		if err != nil {
			yield(journal.Frame{}, err)
			return
		}
		r := reading{folder: f, hidden: map[string]error{}, yield: yield}
		for _, s := range in.Segments {
			if s.First == 0 { // with this segment, journal.Frames would read none at all
				r.hidden[s.Name] = s.Err
			}
		}
		if len(f.segments) > 0 {
			r.next = max(seq, f.segments[0].first)
		}
		r.from = r.next
		for r.pass() {
		}
	}
}

// reading reads the frames in passes. Each ends at the last frame or at damage, and the next starts after
// the damage.
type reading struct {
	folder *Folder
	hidden map[string]error // segments that cannot be opened, and why
	yield  func(journal.Frame, error) bool

	next  uint64 // expected frame
	from  uint64 // start of this pass; after next if that cannot be read
	err   error  // why next cannot be read
	after time.Time
}

// pass reports whether another pass is needed.
func (r *reading) pass() bool {
	for frame, err := range journal.Frames(r.folder.dir, r.from, journal.WithFS(r.folder.view(r.hidden))) {
		if err != nil {
			return r.goRound(err)
		}
		received := time.Unix(0, batch.FrameReceivedAt(frame.Data))
		if frame.Seq > r.next && !r.gap(frame.Seq-1, received) {
			return false
		}
		r.next, r.err, r.after = frame.Seq+1, nil, received
		r.from = r.next
		if !r.yield(frame, nil) {
			return false
		}
	}
	r.end()
	return false
}

// goRound chooses where to continue after damage: at the next frame if the damaged frame's header is
// intact, otherwise at the next segment.
func (r *reading) goRound(err error) bool {
	if r.err == nil {
		r.err = err
	}
	var corrupt *journal.CorruptError
	switch passed := errors.As(err, &corrupt) && corrupt.Seq >= r.from; {
	case passed:
		r.from = corrupt.Seq + 1
		return true
	case r.from == r.next && corrupt == nil: // an I/O error
		r.from++
		return true
	}
	i := slices.IndexFunc(r.folder.segments, func(s segment) bool { return s.first > r.from && r.hidden[s.name] == nil })
	if i < 0 {
		r.gap(NoEnd, time.Time{})
		return false
	}
	r.from = r.folder.segments[i].first
	return true
}

// end reports a gap after the last intact frame.
func (r *reading) end() {
	last := r.folder.segments
	switch n := len(last); {
	case n > 0 && r.hidden[last[n-1].name] != nil && last[n-1].first >= r.next:
		r.gap(NoEnd, time.Time{})
	case r.from > r.next && r.err != nil:
		r.gap(r.from-1, time.Time{})
	}
}

// gap reports the frames r.next … to as unreadable.
func (r *reading) gap(to uint64, before time.Time) bool {
	g := &Gap{From: r.next, To: to, After: r.after, Before: before, Err: r.err}
	for _, s := range r.folder.segments {
		if s.first >= g.From && s.first <= g.To && r.hidden[s.name] != nil {
			g.Err = r.hidden[s.name]
			break
		}
	}
	if g.Err == nil {
		g.Err = errors.New("their segment is missing")
	}
	return r.yield(journal.Frame{}, g)
}
