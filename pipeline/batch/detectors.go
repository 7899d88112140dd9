package batch

import (
	"bytes"
	"hash/maphash"
)

// MaxCodeLen is the longest detector code in bytes: a longer one is in no
// registry (contract 1.2, rule 7).
const MaxCodeLen = 256

// Detectors is the set of detector codes of one product instance: an immutable
// snapshot, safe for concurrent use (contract 1.4). Each code has an
// ordinal 0 ≤ n < Len in the order of the feed.
type Detectors struct {
	seed  maphash.Seed
	text  []byte
	ends  []uint32
	slots []slot // power of two, at most half full
}

// slot points to a code; ord is the ordinal + 1, 0 means empty.
type slot struct{ tag, ord uint32 }

// NewDetectors makes a set of codes; repeated ones count once. Empty codes and
// those over MaxCodeLen are left out; the second result is their number.
func NewDetectors(codes []string) (*Detectors, int) {
	d := &Detectors{seed: maphash.MakeSeed()}
	size := 16
	for size < 2*len(codes) {
		size *= 2
	}
	d.slots = make([]slot, size)
	left := 0
	for _, code := range codes {
		if len(code) == 0 || len(code) > MaxCodeLen {
			left++
			continue
		}
		d.add([]byte(code))
	}
	return d, left
}

// Len is the number of codes.
func (d *Detectors) Len() int { return len(d.ends) }

// Code is the code with this ordinal, a view.
func (d *Detectors) Code(ord int) []byte { return view(d.text, d.ends, ord) }

// Find gives the ordinal of a code.
func (d *Detectors) Find(code []byte) (ord int, ok bool) {
	_, s := d.lookup(code)
	return int(s.ord) - 1, s.ord != 0
}

// Has tells whether the code is in the set.
func (d *Detectors) Has(code []byte) bool {
	_, s := d.lookup(code)
	return s.ord != 0
}

// lookup gives the slot of a code, or the empty one where it belongs.
func (d *Detectors) lookup(code []byte) (at uint32, s slot) {
	h := maphash.Bytes(d.seed, code)
	mask := uint32(len(d.slots) - 1)
	tag := uint32(h >> 32)
	for at = uint32(h) & mask; ; at = (at + 1) & mask {
		s = d.slots[at]
		if s.ord == 0 || s.tag == tag && bytes.Equal(d.Code(int(s.ord)-1), code) {
			return at, s
		}
	}
}

func (d *Detectors) add(code []byte) {
	at, s := d.lookup(code)
	if s.ord != 0 {
		return
	}
	d.text = append(d.text, code...)
	d.ends = append(d.ends, uint32(len(d.text)))
	d.slots[at] = slot{tag: uint32(maphash.Bytes(d.seed, code) >> 32), ord: uint32(len(d.ends))}
}
