package inspect

import (
	"errors"
	"fmt"

	"trafficd/pipeline/journal"
)

// Verdict is the result of Verify.
type Verdict struct {
	*journal.Inspection
	Gaps   []*Gap // acknowledged frames that cannot be read
	Newest uint64 // the last readable frame; 0: none
}

// Verify checks all checksums, and the cursors against the frames.
func (f *Folder) Verify() (*Verdict, error) {
	in, err := f.look(journal.Verify)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Inspection: in}
	for _, s := range in.Segments {
		v.Newest = max(v.Newest, s.Last)
	}
	for _, s := range in.Segments {
		if s.Err == nil {
			continue
		}
		if err := v.readOn(f.silent(), s.Last); err != nil { // reads again from the last intact frame on
			return nil, err
		}
		break
	}
	v.missing()
	return v, nil
}

// readOn finds the unreadable frames from seq on.
func (v *Verdict) readOn(f *Folder, seq uint64) error {
	for frame, err := range f.Frames(seq) {
		var gap *Gap
		switch {
		case errors.As(err, &gap):
			v.Gaps = append(v.Gaps, gap)
		case err != nil:
			return err
		default:
			v.Newest = max(v.Newest, frame.Seq)
		}
	}
	return nil
}

// missing adds the frames that a consumer has consumed but the journal lacks, in which case the daemon
// does not start.
func (v *Verdict) missing() {
	_, next := bounds(v.Inspection)
	for _, c := range v.Cursors {
		if c.Err == nil && c.Seq > next {
			v.Gaps = append(v.Gaps, &Gap{From: next, To: c.Seq - 1, Err: fmt.Errorf("the cursor of %s is at frame %d, so they existed and are now missing", c.Name, c.Seq)})
			next = c.Seq
		}
	}
}

// Damaged reports whether anything is damaged.
func (v *Verdict) Damaged() bool { return v.Err() != nil || len(v.Gaps) > 0 }

// Lacking returns the consumers that have not consumed all of a gap, including those with an unreadable
// cursor.
func (v *Verdict) Lacking(g *Gap) (names []string) {
	for _, c := range v.Cursors {
		if c.Err != nil || c.Seq <= g.To {
			names = append(names, c.Name)
		}
	}
	return names
}

// Lost reports whether a consumer lacks frames of a gap, or there is no cursor to tell.
func (v *Verdict) Lost() bool {
	if len(v.Cursors) == 0 {
		return len(v.Gaps) > 0
	}
	for _, g := range v.Gaps {
		if len(v.Lacking(g)) > 0 {
			return true
		}
	}
	return false
}

// Findings splits a joined error of a segment or cursor into single errors.
func Findings(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Findings(e)...)
		}
		return all
	}
	return []error{err}
}
