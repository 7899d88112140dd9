// Package validate holds the per-item rules of contract 1.2: rules.go reads
// like that table. It is a pure function of decoded items, one registry snapshot
// and one point in time.
package validate

import (
	"fmt"
	"math"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// Config is what the rules leave to the operator.
type Config struct {
	MeasureTypes    []MeasureType `koanf:"measure_types"`    // the allowed ones; empty: any 1–64 of A-Za-z0-9_.-
	FutureTolerance time.Duration `koanf:"future_tolerance"` // how far timestampTo may lie ahead of the clock
	QualityMin      *float64      `koanf:"quality_min"`      // nil: no bound
	QualityMax      *float64      `koanf:"quality_max"`
}

// MeasureType is an allowed measureTypeCode and the range of its values.
type MeasureType struct {
	Code string   `koanf:"code"`
	Min  *float64 `koanf:"min"` // nil: no bound
	Max  *float64 `koanf:"max"`
}

// DefaultConfig takes any measure type and any value, up to an hour ahead.
func DefaultConfig() Config {
	return Config{FutureTolerance: time.Hour}
}

// Validate tells the first setting that is out of its bounds, and why.
func (c Config) Validate() error {
	if c.FutureTolerance < 0 || c.FutureTolerance > 100*365*24*time.Hour {
		return fmt.Errorf("future_tolerance: %v is not in 0…876000h: it says how far ahead of the clock a measurement may end", c.FutureTolerance)
	}
	if _, err := bounds(c.QualityMin, c.QualityMax); err != nil {
		return fmt.Errorf("quality_min, quality_max: %w", err)
	}
	seen := map[string]bool{}
	for i, t := range c.MeasureTypes {
		if !validTypeCode([]byte(t.Code)) {
			return fmt.Errorf("measure_types[%d].code: %q is not 1–64 of A-Za-z0-9_.-", i, t.Code)
		}
		if seen[t.Code] {
			return fmt.Errorf("measure_types[%d].code: %q stands twice", i, t.Code)
		}
		seen[t.Code] = true
		if _, err := bounds(t.Min, t.Max); err != nil {
			return fmt.Errorf("measure_types[%d] (%s): %w", i, t.Code, err)
		}
	}
	return nil
}

// limits is a closed range; the zero of MeasureType and quality is all finite numbers.
type limits struct{ min, max float64 }

var finite = limits{-math.MaxFloat64, math.MaxFloat64}

// has is false for NaN and infinities too.
func (l limits) has(v float64) bool { return v >= l.min && v <= l.max }

func bounds(lo, hi *float64) (limits, error) {
	l := finite
	if lo != nil {
		l.min = *lo
	}
	if hi != nil {
		l.max = *hi
	}
	if !finite.has(l.min) || !finite.has(l.max) || l.min > l.max {
		return l, fmt.Errorf("%v…%v is no range", l.min, l.max)
	}
	return l, nil
}

// Validator applies the rules; it keeps its memory from batch to batch and is
// not safe for concurrent use.
type Validator struct {
	tolerance int64
	quality   limits
	allowed   map[string]limits // nil: every code that is well formed
	types     []typeRule        // of this batch
	detectors follower
}

// typeRule is what rules 8 and 12 say about one measure type of a batch.
type typeRule struct {
	allowed bool
	limits
}

// New makes a validator; cfg has to be valid.
func New(cfg Config) *Validator {
	v := &Validator{tolerance: cfg.FutureTolerance.Nanoseconds()}
	v.quality, _ = bounds(cfg.QualityMin, cfg.QualityMax)
	if len(cfg.MeasureTypes) > 0 {
		v.allowed = make(map[string]limits, len(cfg.MeasureTypes))
	}
	for _, t := range cfg.MeasureTypes {
		v.allowed[t.Code], _ = bounds(t.Min, t.Max)
	}
	return v
}

// Validate appends one rejection for each invalid item to out, ascending by index.
// now is in nanoseconds since 1970 UTC. known is read from the first to the last
// item, so that the batch sees one snapshot.
func (v *Validator) Validate(it *batch.Items, known *batch.Detectors, now int64, out *batch.Rejections) {
	v.judgeTypes(it)
	v.detectors.use(known)
	b := rules{Validator: v, it: it, latest: now + v.tolerance}
	faults := it.Faults
	for row := range it.Rows() {
		var fault *batch.Fault
		if len(faults) > 0 && faults[0].Row == uint32(row) {
			fault, faults = &faults[0], faults[1:]
		}
		if code, field := b.firstBroken(row, fault); code != contract.OK {
			out.Add(row, code, field, b.echo(row, code, field))
		}
	}
	for index := it.Rows(); index < it.Count; index++ {
		out.Add(index, contract.BatchLimitExceeded, contract.FieldItem, nil) // rule 1
	}
}

// judgeTypes looks at each distinct measure type once.
func (v *Validator) judgeTypes(it *batch.Items) {
	v.types = v.types[:0]
	for t := range it.Types() {
		code := it.TypeCode(t)
		rule := typeRule{allowed: validTypeCode(code), limits: finite}
		if v.allowed != nil {
			rule.limits, rule.allowed = v.allowed[string(code)]
		}
		v.types = append(v.types, rule)
	}
}
