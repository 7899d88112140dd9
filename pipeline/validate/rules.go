package validate

import (
	"trafficd/pipeline/batch"
)

// rules is the table of decisions.md 1.2 for one batch.
type rules struct {
	*Validator
	it     *batch.Items
	latest int64 // rule 11
}

// firstBroken gives the first rule that a row breaks, CodeNone if it is valid.
// Rule 1, the batch limit, is for the rows that there are not.
func (b *rules) firstBroken(row int, fault *batch.Fault) (batch.Code, batch.Field) {
	if fault != nil {
		if code, field := structural(fault); code != batch.CodeNone {
			return code, field
		}
	}
	it := b.it
	kind := b.types[it.Type[row]]
	from, to := it.From[row], it.To[row]
	switch {
	case !b.detectors.has(it.Code(row)): // 7
		return batch.UnknownDetector, batch.FieldDetectorCode
	case !kind.allowed: // 8
		return batch.UnknownMeasureType, batch.FieldMeasureTypeCode
	case from == batch.NoTime: // 9
		return batch.InvalidTimestamp, batch.FieldTimestampFrom
	case to == batch.NoTime:
		return batch.InvalidTimestamp, batch.FieldTimestampTo
	case to < from: // 10
		return batch.InvalidInterval, batch.FieldTimestampTo
	case to > b.latest: // 11
		return batch.TimestampInFuture, batch.FieldTimestampTo
	case !kind.has(it.Value[row]): // 12
		return batch.InvalidValue, batch.FieldValue
	case it.HasQuality(row) && !b.quality.has(it.Quality[row]): // 13
		return batch.InvalidQuality, batch.FieldQuality
	}
	return batch.CodeNone, 0
}

// structural is rules 2–6: what decoding found.
func structural(f *batch.Fault) (batch.Code, batch.Field) {
	switch {
	case f.NoObject: // 2
		return batch.InvalidType, batch.FieldItem
	case f.Twice != 0: // 3
		return batch.DuplicateField, first(f.Twice)
	case f.LinkID: // 4
		return batch.ReservedField, batch.FieldLinkID
	case f.Absent != 0: // 5
		return batch.MissingField, first(f.Absent)
	case f.WrongType != 0: // 6
		return batch.InvalidType, first(f.WrongType)
	}
	return batch.CodeNone, 0
}

// first is the member that comes first in the table's order.
func first(s batch.FieldSet) batch.Field {
	f := batch.FieldDetectorCode
	for !s.Has(f) {
		f++
	}
	return f
}

// echo is what of the input the rejection repeats.
func (b *rules) echo(row int, code batch.Code, field batch.Field) []byte {
	switch code {
	case batch.UnknownDetector:
		return b.it.Code(row)
	case batch.UnknownMeasureType:
		return b.it.TypeCode(int(b.it.Type[row]))
	case batch.InvalidTimestamp:
		return b.it.RawOf(row, field)
	}
	return nil
}

// validTypeCode is rule 8 where no list is set.
func validTypeCode(code []byte) bool {
	for _, c := range code {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return len(code) >= 1 && len(code) <= 64
}
