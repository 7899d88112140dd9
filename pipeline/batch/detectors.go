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

// IsCode reports whether code may be a detector's: it is neither empty nor longer than MaxCodeLen.
func IsCode(code string) bool { return code != "" && len(code) <= MaxCodeLen }

// Detectors is an immutable set of the detector codes of one product instance (contract 1.4), safe
// for concurrent use. The ordinal of a code is its position among the feed's distinct valid codes.
type Detectors struct {
	seed    maphash.Seed
	text    []byte
	ends    []uint32
	slots   []uint32 // hash table with open addressing, at most half full: ordinal + 1, or 0 for empty
	version uint64   // sum of the codes' hashes, which do not depend on seed
}

// NewDetectors returns the set of codes. It skips those that are not valid (see IsCode), and
// returns their number.
func NewDetectors(codes []string) (d *Detectors, skipped int) {
	size := 0
	for _, code := range codes {
		if IsCode(code) {
			size += len(code)
		}
	}
	d = &Detectors{
		seed: maphash.MakeSeed(), text: make([]byte, 0, size), ends: make([]uint32, 0, len(codes)),
		slots: make([]uint32, 2<<bits.Len(uint(len(codes)))),
	}
	for _, code := range codes {
		if !IsCode(code) {
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

// Version returns a hash of the set. It does not depend on the order of the codes and is the same
// in every process.
func (d *Detectors) Version() string { return fmt.Sprintf("%016x", d.version) }

// Code returns the code with the ordinal ord. The caller must not modify it.
func (d *Detectors) Code(ord int) []byte { return view(d.text, d.ends, ord) }

// Find returns the ordinal of a code. ok is false if the code is not in the set.
func (d *Detectors) Find(code []byte) (ord int, ok bool) {
	slot, ok := d.lookup(code)
	return int(*slot) - 1, ok
}

// Has reports whether the code is in the set.
func (d *Detectors) Has(code []byte) bool {
	_, ok := d.lookup(code)
	return ok
}

// lookup returns the slot of a code or, if the code is not in the set, the empty slot for it.
func (d *Detectors) lookup(code []byte) (slot *uint32, found bool) {
	mask := uint64(len(d.slots) - 1)
	for at := maphash.Bytes(d.seed, code) & mask; ; at = (at + 1) & mask {
		slot = &d.slots[at]
		if *slot == 0 || bytes.Equal(d.Code(int(*slot)-1), code) {
			return slot, *slot != 0
		}
	}
}

// Attribute is the name of a column of a registry feed and a detector's value in it.
type Attribute struct{ Name, Value string }

// DetectorList lists the detectors that a registry feed contains for one product instance.
type DetectorList struct {
	ProductInstance string
	Codes           []string
	Attributes      [][]Attribute // Attributes[i] belong to Codes[i]
}
