package batch

import (
	"bytes"
	"fmt"
	"hash/maphash"

	"github.com/cespare/xxhash/v2"
)

// MaxCodeLen is the maximum length of a detector code in bytes (contract 1.2, rule 7).
const MaxCodeLen = 256

// Detectors is an immutable set of the detector codes of one product instance (contract 1.4), safe for concurrent use.
// Each code has an ordinal 0 ≤ n < Len in the order of the feed.
type Detectors struct {
	seed     maphash.Seed
	text     []byte
	ends     []uint32
	ordinals map[uint64]uint32 // by hash; of equal hashes, the later ones have the next numbers
	version  uint64            // the sum of the codes' hashes, which are the same in every process
}

// NewDetectors returns a set of the codes without duplicates. It skips empty codes and those over MaxCodeLen; the second
// result is their number.
func NewDetectors(codes []string) (*Detectors, int) {
	d := &Detectors{seed: maphash.MakeSeed(), ordinals: make(map[uint64]uint32, len(codes))}
	skipped := 0
	for _, code := range codes {
		if len(code) == 0 || len(code) > MaxCodeLen {
			skipped++
			continue
		}
		h, _, found := d.lookup([]byte(code))
		if !found {
			d.ordinals[h] = uint32(len(d.ends))
			d.text = append(d.text, code...)
			d.ends = append(d.ends, uint32(len(d.text)))
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
	_, ord, ok = d.lookup(code)
	return ord, ok
}

// Has reports whether the code is in the set.
func (d *Detectors) Has(code []byte) bool {
	_, _, ok := d.lookup(code)
	return ok
}

func (d *Detectors) lookup(code []byte) (h uint64, ord int, found bool) {
	for h = maphash.Bytes(d.seed, code); ; h++ {
		n, taken := d.ordinals[h]
		if !taken || bytes.Equal(d.Code(int(n)), code) {
			return h, int(n), taken
		}
	}
}

// Attribute is a column of a registry feed other than the code, with its value for a detector.
type Attribute struct{ Name, Value string }

// DetectorList is the detectors of a product instance as a registry feed has them. Attributes[i] are those of Codes[i].
type DetectorList struct {
	ProductInstance string
	Codes           []string
	Attributes      [][]Attribute
}
