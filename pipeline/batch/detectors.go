package batch

import (
	"bytes"
	"hash/maphash"
)

// MaxCodeLen is the maximum length of a detector code in bytes (contract 1.2, rule 7).
const MaxCodeLen = 256

// Detectors is an immutable set of the detector codes of one product instance (contract 1.4), safe for concurrent use.
// Each code has an ordinal 0 ≤ n < Len in the order of the feed.
type Detectors struct {
	seed  maphash.Seed
	text  []byte
	ends  []uint32
	slots []slot // power of two, at most half full
}

// slot refers to a code; ord is its ordinal + 1, or 0 for an empty slot.
type slot struct{ tag, ord uint32 }

// NewDetectors returns a set of the codes without duplicates. It skips empty codes and those over MaxCodeLen; the second
// result is their number.
func NewDetectors(codes []string) (*Detectors, int) {
	d := &Detectors{seed: maphash.MakeSeed()}
	size := 16
	for size < 2*len(codes) {
		size *= 2
	}
	d.slots = make([]slot, size)
	skipped := 0
	for _, code := range codes {
		if len(code) == 0 || len(code) > MaxCodeLen {
			skipped++
			continue
		}
		at, s := d.lookup([]byte(code))
		if s.ord != 0 {
			continue
		}
		d.text = append(d.text, code...)
		d.ends = append(d.ends, uint32(len(d.text)))
		d.slots[at] = slot{tag: uint32(maphash.String(d.seed, code) >> 32), ord: uint32(len(d.ends))}
	}
	return d, skipped
}

// Len returns the number of codes.
func (d *Detectors) Len() int { return len(d.ends) }

// Code returns the code with this ordinal, a view.
func (d *Detectors) Code(ord int) []byte { return view(d.text, d.ends, ord) }

// Find returns the ordinal of a code.
func (d *Detectors) Find(code []byte) (ord int, ok bool) {
	_, s := d.lookup(code)
	return int(s.ord) - 1, s.ord != 0
}

// Has reports whether the code is in the set.
func (d *Detectors) Has(code []byte) bool {
	_, s := d.lookup(code)
	return s.ord != 0
}

// lookup returns the slot of a code, or the empty slot where it belongs.
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
