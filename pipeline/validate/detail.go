package validate

import (
	"bytes"
	"strconv"
	"time"

	"trafficd/schemas/contract"
)

// detail returns the detail of a rejection, which is valid until the next one.
func (v *Validator) detail(seen, more []byte) []byte {
	v.scratch[2] = contract.AppendDetail(v.scratch[2][:0], seen, more)
	return v.scratch[2]
}

// time returns a timestamp as text. It is valid until the next call with the same slot.
func (v *Validator) time(slot int, ns int64) []byte {
	v.scratch[slot] = time.Unix(0, ns).UTC().AppendFormat(v.scratch[slot][:0], time.RFC3339Nano)
	return v.scratch[slot]
}

func (v *Validator) number(value float64) []byte {
	v.scratch[0] = strconv.AppendFloat(v.scratch[0][:0], value, 'g', -1, 64)
	return v.scratch[0]
}

const (
	maxHints = 256 // unknown codes of a batch for which a similar one is looked up; bounds the time of a batch
	maxZeros = 8   // that a spreadsheet may have removed from a code
)

// hint returns a code of the registry that differs from an unknown one only in leading zeros, case
// or white space around it, or nil: spreadsheets make 815 of 0815.
func (v *Validator) hint(code []byte) []byte {
	if len(code) == 0 || len(code) > contract.EchoLimit/2 {
		return nil
	}
	if hint, ok := v.hints[string(code)]; ok || len(v.hints) == maxHints {
		return hint
	}
	var hint []byte
	is := func(c []byte) bool {
		if len(c) == 0 || !v.follower.known.Has(c) {
			return false
		}
		hint = c
		return true
	}
	plain := bytes.TrimSpace(code)
	found := is(plain) || is(bytes.ToUpper(plain)) || is(bytes.ToLower(plain))
	if len(plain) > 0 && len(bytes.Trim(plain, "0123456789")) == 0 {
		digits := bytes.TrimLeft(plain, "0")
		padded := append(bytes.Repeat([]byte{'0'}, maxZeros), digits...)
		for zeros := maxZeros; !found && zeros >= 0; zeros-- {
			found = is(padded[zeros:])
		}
	}
	v.hints[string(code)] = hint
	return hint
}
