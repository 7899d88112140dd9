package validate

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// check applies the rules of contract 1.2 to a row, in their order. It returns the code of the
// first broken rule, or contract.OK, with the field at fault and the input to quote. Rule 1, the
// batch limit, applies to items without a row.
func (v *Validator) check(it *batch.Items, row int, fault *batch.Fault) (code contract.Code, field contract.Field, echo []byte) {
	if f := fault; f != nil {
		switch {
		case f.NotObject: // 2
			return contract.InvalidType, contract.FieldItem, nil
		case f.Duplicate != 0: // 3
			return contract.DuplicateField, first(f.Duplicate), nil
		case f.LinkID: // 4
			return contract.ReservedField, contract.FieldLinkID, nil
		case f.Absent != 0: // 5
			return contract.MissingField, first(f.Absent), nil
		case f.WrongType != 0: // 6
			return contract.InvalidType, first(f.WrongType), nil
		}
	}
	kind := v.types[it.Type[row]]
	from, to := it.From[row], it.To[row]
	switch {
	case !v.detectors.has(it.Code(row)): // 7
		return contract.UnknownDetector, contract.FieldDetectorCode, it.Code(row)
	case !kind.allowed: // 8
		return contract.UnknownMeasureType, contract.FieldMeasureTypeCode, it.TypeCode(int(it.Type[row]))
	case from == batch.NoTime: // 9
		return contract.InvalidTimestamp, contract.FieldTimestampFrom, it.RawOf(row, contract.FieldTimestampFrom)
	case to == batch.NoTime:
		return contract.InvalidTimestamp, contract.FieldTimestampTo, it.RawOf(row, contract.FieldTimestampTo)
	case to < from: // 10
		return contract.InvalidInterval, contract.FieldTimestampTo, nil
	case to > v.latest: // 11
		return contract.TimestampInFuture, contract.FieldTimestampTo, nil
	case !kind.has(it.Value[row]): // 12
		return contract.InvalidValue, contract.FieldValue, nil
	case it.HasQuality(row) && !v.quality.has(it.Quality[row]): // 13
		return contract.InvalidQuality, contract.FieldQuality, nil
	}
	return contract.OK, contract.FieldItem, nil
}

func first(s contract.FieldSet) contract.Field {
	f := contract.FieldDetectorCode
	for !s.Has(f) {
		f++
	}
	return f
}

// validTypeCode reports whether a measure type code is well formed (rule 8).
func validTypeCode(code []byte) bool {
	for _, c := range code {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return len(code) >= 1 && len(code) <= 64
}

// follower looks up codes in a registry snapshot. Batches list the detectors in a stable order, so
// it first tries the detector that followed the current one last time: this takes one comparison of
// adjacent bytes, instead of a hash and a cache miss in the table (BenchmarkLookup).
type follower struct {
	known *batch.Detectors
	next  []uint32 // ordinal → its last successor
	last  uint32
}

func (f *follower) use(known *batch.Detectors) {
	if f.known == known {
		return
	}
	f.known, f.last = known, 0
	f.next = f.next[:0]
	for ord := range known.Len() {
		f.next = append(f.next, uint32(ord+1)%uint32(known.Len()))
	}
}

func (f *follower) has(code []byte) bool {
	if len(f.next) == 0 {
		return false
	}
	guess := f.next[f.last]
	if string(f.known.Code(int(guess))) == string(code) {
		f.last = guess
		return true
	}
	ord, ok := f.known.Find(code)
	if ok {
		f.next[f.last], f.last = uint32(ord), uint32(ord)
	}
	return ok
}

// identities finds items of a batch that share detector, measure type and interval, and so replace
// each other in the archive. Unless the batch is sorted, it uses a hash table with open addressing,
// at most half full, whose memory is reused from batch to batch.
type identities struct {
	seed  [4]uint64 // random: a client cannot choose items that collide
	slots []uint32  // row + 1 in the low bits, bits of the hash in the others; 0 is empty
	rows  uint32    // mask of the low bits

	from, to int64  // interval of the last row, which most rows of a batch share
	interval uint64 // hash of from and to
}

func newIdentities() identities {
	return identities{seed: [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}}
}

// invalid is the ordinal of a row without an identity.
const invalid = math.MaxUint32

// count returns how many rows have the same identity as an earlier one. detectors are the ordinals
// of the rows' codes.
func (d *identities) count(it *batch.Items, detectors []uint32) (duplicates int) {
	if sorted(it, detectors) {
		return 0
	}
	size := 2 << bits.Len(uint(len(detectors)))
	d.rows = uint32(size/2 - 1)
	d.slots = slices.Grow(d.slots[:0], size)[:size]
	clear(d.slots)
	for row, detector := range detectors {
		if detector != invalid && d.add(it, row, detector) {
			duplicates++
		}
	}
	return duplicates
}

// sorted reports whether the rows are strictly sorted by interval or by detector, in the order of
// the registry, as most batches are.
func sorted(it *batch.Items, detectors []uint32) bool {
	byInterval, byDetector := true, true
	before, from, to, kind := int64(-1), int64(math.MinInt64), int64(0), uint32(0)
	for row, d := range detectors {
		if d == invalid {
			continue
		}
		detector, f, t, k := int64(d), it.From[row], it.To[row], it.Type[row]
		switch {
		case f == from && t == to:
			if detector < before || detector == before && k <= kind {
				return false
			}
		case f > from || f == from && t > to:
			byDetector = byDetector && detector >= before
		default:
			byInterval, byDetector = false, byDetector && detector > before
		}
		if !byInterval && !byDetector {
			return false
		}
		before, from, to, kind = detector, f, t, k
	}
	return true
}

// add adds a row to the table and reports whether an earlier one has the same identity.
func (d *identities) add(it *batch.Items, row int, detector uint32) (duplicate bool) {
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
