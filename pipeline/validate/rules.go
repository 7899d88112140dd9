package validate

import (
	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// rules is the table of contract 1.2 for one batch.
type rules struct {
	*Validator
	it     *batch.Items
	latest int64 // rule 11
}

// firstBroken gives the first rule that a row breaks, CodeNone if it is valid.
// Rule 1, the batch limit, is for the rows that there are not.
func (b *rules) firstBroken(row int, fault *batch.Fault) (contract.Code, contract.Field) {
	if fault != nil {
		if code, field := structural(fault); code != contract.OK {
			return code, field
		}
	}
	it := b.it
	kind := b.types[it.Type[row]]
	from, to := it.From[row], it.To[row]
	switch {
	case !b.detectors.has(it.Code(row)): // 7
		return contract.UnknownDetector, contract.FieldDetectorCode
	case !kind.allowed: // 8
		return contract.UnknownMeasureType, contract.FieldMeasureTypeCode
	case from == batch.NoTime: // 9
		return contract.InvalidTimestamp, contract.FieldTimestampFrom
	case to == batch.NoTime:
		return contract.InvalidTimestamp, contract.FieldTimestampTo
	case to < from: // 10
		return contract.InvalidInterval, contract.FieldTimestampTo
	case to > b.latest: // 11
		return contract.TimestampInFuture, contract.FieldTimestampTo
	case !kind.has(it.Value[row]): // 12
		return contract.InvalidValue, contract.FieldValue
	case it.HasQuality(row) && !b.quality.has(it.Quality[row]): // 13
		return contract.InvalidQuality, contract.FieldQuality
	}
	return contract.OK, 0
}

// structural is rules 2–6: what decoding found.
func structural(f *batch.Fault) (contract.Code, contract.Field) {
	switch {
	case f.NoObject: // 2
		return contract.InvalidType, contract.FieldItem
	case f.Twice != 0: // 3
		return contract.DuplicateField, first(f.Twice)
	case f.LinkID: // 4
		return contract.ReservedField, contract.FieldLinkID
	case f.Absent != 0: // 5
		return contract.MissingField, first(f.Absent)
	case f.WrongType != 0: // 6
		return contract.InvalidType, first(f.WrongType)
	}
	return contract.OK, 0
}

// first is the member that comes first in the table's order.
func first(s contract.FieldSet) contract.Field {
	f := contract.FieldDetectorCode
	for !s.Has(f) {
		f++
	}
	return f
}

// echo is what of the input the rejection repeats.
func (b *rules) echo(row int, code contract.Code, field contract.Field) []byte {
	switch code {
	case contract.UnknownDetector:
		return b.it.Code(row)
	case contract.UnknownMeasureType:
		return b.it.TypeCode(int(b.it.Type[row]))
	case contract.InvalidTimestamp:
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
