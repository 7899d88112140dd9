// Package validate applies the rules of contract 1.2 to decoded items. It is a pure function of the
// items, one registry snapshot and one point in time. The rules are the cases of check in rules.go.
package validate

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/contract"
)

// Config holds the configurable parts of the rules.
type Config struct {
	MeasureTypes    []MeasureType `setting:"measure_types"`    // allowed measure types; empty: any code of 1–64 characters A-Za-z0-9_.-
	FutureTolerance time.Duration `setting:"future_tolerance"` // how far timestampTo may be ahead of the clock
	QualityMin      *float64      `setting:"quality_min"`      // lowest allowed quality; null: no bound
	QualityMax      *float64      `setting:"quality_max"`      // highest allowed quality; null: no bound
}

// MeasureType is an allowed measureTypeCode with the range of its values.
type MeasureType struct {
	Code string   `setting:"code"` // measureTypeCode
	Min  *float64 `setting:"min"`  // lowest allowed value; null: no bound
	Max  *float64 `setting:"max"`  // highest allowed value; null: no bound
	// unit of the values, such as km/h, % or veh, for those who read the archive; a number per hour
	// ends in /h, as in veh/h
	Unit string `setting:"unit"`
}

const maxUnit = 16

// DefaultConfig returns rules that accept any measure type, any value, and timestamps up to an hour
// ahead of the clock.
func DefaultConfig() Config {
	return Config{FutureTolerance: time.Hour}
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	const longest = 100 * 365 * 24 * time.Hour
	errs := []error{settings.Check(c.FutureTolerance >= 0 && c.FutureTolerance <= longest,
		"future_tolerance is %v, must be 0 to 876000h", c.FutureTolerance)}
	if _, err := newRange(c.QualityMin, c.QualityMax); err != nil {
		errs = append(errs, fmt.Errorf("quality_min, quality_max: %w", err))
	}
	seen := map[string]bool{}
	for i, t := range c.MeasureTypes {
		errs = append(errs,
			settings.Check(validTypeCode([]byte(t.Code)), "measure_types[%d].code is %q, must be 1 to 64 characters A-Za-z0-9_.-", i, t.Code),
			settings.Check(!seen[t.Code], "measure_types[%d].code: duplicate code %q", i, t.Code))
		errs = append(errs, settings.Check(len(t.Unit) <= maxUnit && utf8.ValidString(t.Unit) &&
			!strings.ContainsFunc(t.Unit, func(r rune) bool { return !unicode.IsPrint(r) }),
			"measure_types[%d].unit is %q, must be at most %d bytes of visible text", i, t.Unit, maxUnit))
		seen[t.Code] = true
		if _, err := newRange(t.Min, t.Max); err != nil {
			errs = append(errs, fmt.Errorf("measure_types[%d] (%s): %w", i, t.Code, err))
		}
	}
	return errors.Join(errs...)
}

// Allowed returns what the rules accept, for descriptions.
func (c Config) Allowed() contract.Allowed {
	const maxNamed = 5 // bounds the size of a response
	a := contract.Allowed{FutureTolerance: c.FutureTolerance.String(), MeasureTypes: "use 1 to 64 characters A-Za-z0-9_.-"}
	for i, t := range c.MeasureTypes {
		switch i {
		case 0:
			a.MeasureTypes = "allowed are " + t.Code
		case maxNamed:
			a.MeasureTypes += fmt.Sprintf(" and %d others", len(c.MeasureTypes)-maxNamed)
			return a
		default:
			a.MeasureTypes += ", " + t.Code
		}
	}
	return a
}

type valueRange struct {
	min, max float64
	text     []byte // follows "a finite number"; empty if there are no bounds
}

var finite = valueRange{min: -math.MaxFloat64, max: math.MaxFloat64}

// has reports whether v is in the range. It returns false for NaN and infinities.
func (r valueRange) has(v float64) bool { return v >= r.min && v <= r.max }

func newRange(lo, hi *float64) (valueRange, error) {
	r := finite
	if lo != nil {
		r.min = *lo
	}
	if hi != nil {
		r.max = *hi
	}
	if !finite.has(r.min) || !finite.has(r.max) || r.min > r.max {
		return r, fmt.Errorf("invalid range %v to %v", r.min, r.max)
	}
	switch {
	case lo != nil && hi != nil:
		r.text = fmt.Appendf(nil, " from %v to %v", r.min, r.max)
	case lo != nil:
		r.text = fmt.Appendf(nil, " of %v or more", r.min)
	case hi != nil:
		r.text = fmt.Appendf(nil, " of %v or less", r.max)
	}
	return r, nil
}

// Validator applies the rules. It reuses its memory and is not safe for concurrent use.
type Validator struct {
	tolerance int64
	quality   valueRange
	allowed   map[string]valueRange // nil: any well-formed code

	// State for the current batch.
	latest    int64 // rule 11
	types     []typeRule
	follower  follower
	detectors []uint32 // row → ordinal
	seen      identities
}

// typeRule is the outcome of rule 8 and the range of rule 12 for one measure type.
type typeRule struct {
	allowed bool
	valueRange
}

// New returns a validator. cfg must be valid.
func New(cfg Config) *Validator {
	v := &Validator{tolerance: cfg.FutureTolerance.Nanoseconds(), seen: newIdentities()}
	v.quality, _ = newRange(cfg.QualityMin, cfg.QualityMax)
	if len(cfg.MeasureTypes) > 0 {
		v.allowed = make(map[string]valueRange, len(cfg.MeasureTypes))
	}
	for _, t := range cfg.MeasureTypes {
		v.allowed[t.Code], _ = newRange(t.Min, t.Max)
	}
	return v
}

// Validate appends a rejection for each invalid item to out, in ascending order of Index. known is
// the registry snapshot; now is in nanoseconds since the Unix epoch. duplicates is the number of
// valid items that have the same detector, measure type and interval as an earlier one, which they
// replace in the archive (contract 1.3).
func (v *Validator) Validate(it *batch.Items, known *batch.Detectors, now int64, out *batch.Rejections) (duplicates int) {
	v.latest = now + v.tolerance
	v.follower.use(known)
	v.detectors = v.follower.find(&it.Columns, v.detectors[:0])
	v.types = v.types[:0]
	for t := range it.Types() {
		code := it.TypeCode(t)
		rule := typeRule{allowed: validTypeCode(code), valueRange: finite}
		if v.allowed != nil {
			rule.valueRange, rule.allowed = v.allowed[string(code)]
		}
		v.types = append(v.types, rule)
	}
	faults := it.Faults
	for row := range it.Rows() {
		var fault *batch.Fault
		if len(faults) > 0 && faults[0].Row == uint32(row) {
			fault, faults = &faults[0], faults[1:]
		}
		if code, field, detail := v.check(it, row, fault); code != contract.OK {
			out.Add(row, code, field, detail)
			v.detectors[row] = unknown
		}
	}
	for index := it.Rows(); index < it.Count; index++ {
		out.Add(index, contract.BatchLimitExceeded, contract.FieldItem, nil) // rule 1
	}
	return v.seen.count(it, v.detectors)
}
