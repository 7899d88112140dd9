package inspect

import (
	"errors"
	"fmt"

	"trafficd/pipeline/journal"
)

// Verdict is what Verify found.
type Verdict struct {
	*journal.Inspection
	Gaps   []*Gap // frames that are promised and cannot be read
	Newest uint64 // the last frame that can be read, 0 if none can
}

// Verify checks every checksum, and every cursor against the frames.
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
		if err := v.readOn(f.silent(), s.Last); err != nil { // a second reading, from the last whole frame on
			return nil, err
		}
		break
	}
	v.missing()
	return v, nil
}

// readOn finds out which frames from seq on can be read.
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

// missing adds the frames that a consumer has read and the journal does not
// have: the daemon does not start then.
func (v *Verdict) missing() {
	_, next := bounds(v.Inspection)
	for _, c := range v.Cursors {
		if c.Err == nil && c.Seq > next {
			v.Gaps = append(v.Gaps, &Gap{From: next, To: c.Seq - 1, Err: fmt.Errorf("the cursor of %s stands at frame %d: they were there, and are missing now", c.Name, c.Seq)})
			next = c.Seq
		}
	}
}

// Damaged tells whether anything is wrong.
func (v *Verdict) Damaged() bool { return v.Err() != nil || len(v.Gaps) > 0 }

// Lacking names the consumers that have not got all of a gap. One whose cursor
// cannot be read may lack it.
func (v *Verdict) Lacking(g *Gap) (names []string) {
	for _, c := range v.Cursors {
		if c.Err != nil || c.Seq <= g.To {
			names = append(names, c.Name)
		}
	}
	return names
}

// Lost tells whether a consumer lacks anything of any gap, or nobody can tell.
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

// Findings takes an error of a segment or cursor apart, one for each thing that
// is wrong with it.
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
