package validate

import (
	"math/bits"
	"math/rand/v2"

	"trafficd/pipeline/batch"
)

// identities finds items of a batch that share detector, measure type and interval, and so replace each other in the
// archive. It is a hash table with open addressing, at most half full, whose memory is reused from batch to batch.
type identities struct {
	seed  [4]uint64 // random: a client cannot choose items that collide
	slots []uint32  // as many bits of the hash as there is room for, row + 1; 0 is empty
	rows  uint32    // mask of row + 1

	from, to int64  // of the last row, as most rows of a batch share them
	interval uint64 // their hash
}

func newIdentities() identities {
	return identities{seed: [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}}
}

// reset empties the table for a number of rows.
func (d *identities) reset(rows int) {
	size := 2 << bits.Len(uint(rows))
	d.rows = uint32(size/2 - 1)
	if cap(d.slots) < size {
		d.slots = make([]uint32, size)
		return
	}
	d.slots = d.slots[:size]
	clear(d.slots)
}

// add adds a valid row and reports whether an earlier one has the same identity. detector is the ordinal of its code.
func (d *identities) add(it *batch.Items, row int, detector uint32) (again bool) {
	if from, to := it.From[row], it.To[row]; from != d.from || to != d.to || d.interval == 0 {
		d.from, d.to, d.interval = from, to, d.mix(uint64(from)^d.seed[0], uint64(to)^d.seed[1])
	}
	h := d.mix(d.interval^d.seed[2], (uint64(detector)<<32|uint64(it.Type[row]))^d.seed[3])
	mask, tag := uint64(len(d.slots)-1), uint32(h>>32)&^d.rows
	for at := h & mask; ; at = (at + 1) & mask {
		slot := d.slots[at]
		if slot == 0 {
			d.slots[at] = tag | uint32(row+1)
			return false
		}
		if slot&^d.rows != tag {
			continue
		}
		other := int(slot&d.rows) - 1
		if it.From[other] == it.From[row] && it.To[other] == it.To[row] && it.Type[other] == it.Type[row] &&
			string(it.Code(other)) == string(it.Code(row)) {
			return true
		}
	}
}

func (*identities) mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
