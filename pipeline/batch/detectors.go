package batch

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// MaxCodeLen is the maximum length of a detector code in bytes (contract 1.2, rule 7).
const MaxCodeLen = 256

// Detectors is an immutable set of the detector codes of one product instance (contract 1.4), safe
// for concurrent use. Each code has an ordinal 0 ≤ n < Len in the order of the feed.
type Detectors struct {
	seed    maphash.Seed
	text    []byte
	ends    []uint32
	slots   []uint32 // hash table with open addressing, at most half full: ordinal + 1; 0 is empty
	version uint64   // the sum of the codes' hashes, which are the same in every process
}

// NewDetectors returns a set of the codes without duplicates. It skips empty codes and those over
// MaxCodeLen; the second result is their number.
func NewDetectors(codes []string) (*Detectors, int) {
	size := 0
	for _, code := range codes {
		if len(code) <= MaxCodeLen {
			size += len(code)
		}
	}
	d := &Detectors{
		seed: maphash.MakeSeed(), text: make([]byte, 0, size), ends: make([]uint32, 0, len(codes)),
		slots: make([]uint32, 2<<bits.Len(uint(len(codes)))),
	}
	skipped := 0
	for _, code := range codes {
		if len(code) == 0 || len(code) > MaxCodeLen {
			skipped++
			continue
		}
		slot, found := d.lookup([]byte(code))
		if !found {
			d.text = append(d.text, code...)
			d.ends = append(d.ends, uint32(len(d.text)))
			*slot = uint32(len(d.ends))
			d.version += xxhash.Sum64String(code)
		}
	}
	return d, skipped
}

// Len returns the number of codes.
func (d *Detectors) Len() int { return len(d.ends) }

// Version identifies the set: it is equal for the same codes in any order, in every process.
func (d *Detectors) Version() string { return fmt.Sprintf("%016x", d.version) }

// Code returns the code with this ordinal, a view.
func (d *Detectors) Code(ord int) []byte { return view(d.text, d.ends, ord) }

// Find returns the ordinal of a code.
func (d *Detectors) Find(code []byte) (ord int, ok bool) {
	slot, ok := d.lookup(code)
	return int(*slot) - 1, ok
}

// Has reports whether the code is in the set.
func (d *Detectors) Has(code []byte) bool {
	_, ok := d.lookup(code)
	return ok
}

// lookup returns the slot of a code, an empty one if the code is not in the set.
func (d *Detectors) lookup(code []byte) (slot *uint32, found bool) {
	mask := uint64(len(d.slots) - 1)
	for at := maphash.Bytes(d.seed, code) & mask; ; at = (at + 1) & mask {
		slot = &d.slots[at]
		if *slot == 0 || bytes.Equal(d.Code(int(*slot)-1), code) {
			return slot, *slot != 0
		}
	}
}

// Attribute is a column of a registry feed other than the code, with its value for a detector.
type Attribute struct{ Name, Value string }

// DetectorList holds the detectors of a product instance as a registry feed lists them.
// Attributes[i] are those of Codes[i].
type DetectorList struct {
	ProductInstance string
	Codes           []string
	Attributes      [][]Attribute
}
