package validate

import (
	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// check applies the rules of contract 1.2 to a row, in their order. It returns the first one that is broken, or
// contract.OK, with the field at fault and the input to repeat. Rule 1, the batch limit, is for items without a row.
func (v *Validator) check(it *batch.Items, row int, fault *batch.Fault) (code contract.Code, field contract.Field, echo []byte) {
	if f := fault; f != nil {
		switch {
		case f.NoObject: // 2
			return contract.InvalidType, contract.FieldItem, nil
		case f.Twice != 0: // 3
			return contract.DuplicateField, first(f.Twice), nil
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

// first returns the first field of a non-empty set.
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
