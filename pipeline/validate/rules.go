// Package validate applies the rules of contract 1.2 to decoded items. It is a pure function of the
// items, one registry snapshot and one point in time. The rules are the cases of check.
package validate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
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
	Code string   `setting:"code"` // measureTypeCode, or the beginning of it followed by *; an entry with more characters has priority
	Min  *float64 `setting:"min"`  // lowest allowed value; null: no bound
	Max  *float64 `setting:"max"`  // highest allowed value; null: no bound
	// unit of the values, such as km/h, % or veh, for those who read the archive; a number per hour
	// ends in /h, as in veh/h. The forecaster converts speeds in mph or m/s to km/h
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
			settings.Check(validPattern(t.Code),
				"measure_types[%d].code is %q, must be 1 to 64 characters A-Za-z0-9_.-, or such a beginning followed by *", i, t.Code),
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

// validPattern reports whether code is a measure type code, or the beginning of one followed by *.
func validPattern(code string) bool {
	prefix, open := strings.CutSuffix(code, "*")
	return open && prefix == "" || validTypeCode([]byte(prefix))
}

// measureTypes finds the entry of Config.MeasureTypes for a code.
type measureTypes struct {
	exact    map[string]int
	prefixes []int // entries with *, the longest first
	list     []MeasureType
}

func newMeasureTypes(list []MeasureType) measureTypes {
	m := measureTypes{exact: make(map[string]int, len(list)), list: list}
	for i, t := range list {
		if strings.HasSuffix(t.Code, "*") {
			m.prefixes = append(m.prefixes, i)
		} else {
			m.exact[t.Code] = i
		}
	}
	slices.SortStableFunc(m.prefixes, func(i, j int) int { return len(list[j].Code) - len(list[i].Code) })
	return m
}

// find returns the index of the entry, or -1.
func (m *measureTypes) find(code []byte) int {
	if i, ok := m.exact[string(code)]; ok {
		return i
	}
	for _, i := range m.prefixes {
		if prefix := m.list[i].Code[:len(m.list[i].Code)-1]; len(code) >= len(prefix) && string(code[:len(prefix)]) == prefix {
			return i
		}
	}
	return -1
}

// Allows returns a function that reports whether a measure type is allowed.
func (c Config) Allows() func(code string) bool {
	types := newMeasureTypes(c.MeasureTypes)
	return func(code string) bool { return len(c.MeasureTypes) == 0 || types.find([]byte(code)) >= 0 }
}

// Units returns a function that returns the unit of a measure type, or "" if it has none.
func (c Config) Units() func(code string) string {
	types := newMeasureTypes(c.MeasureTypes)
	return func(code string) string {
		if i := types.find([]byte(code)); i >= 0 {
			return c.MeasureTypes[i].Unit
		}
		return ""
	}
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
	allowed   measureTypes // without entries, any well-formed code is allowed
	ranges    []valueRange // of the entries of allowed

	// State for the current batch.
	latest    int64 // rule 11
	types     []typeRule
	follower  follower
	detectors []uint32 // row → ordinal
	seen      identities
	hints     map[string][]byte // unknown code → similar code of the registry, or nil
	scratch   [3][]byte         // of the detail of a rejection
}

// typeRule is the outcome of rule 8 and the range of rule 12 for one measure type.
type typeRule struct {
	allowed bool
	valueRange
}

// New returns a validator. cfg must be valid.
func New(cfg Config) *Validator {
	v := &Validator{tolerance: cfg.FutureTolerance.Nanoseconds(), seen: newIdentities(), hints: map[string][]byte{}}
	v.quality, _ = newRange(cfg.QualityMin, cfg.QualityMax)
	v.allowed = newMeasureTypes(cfg.MeasureTypes)
	for _, t := range cfg.MeasureTypes {
		r, _ := newRange(t.Min, t.Max)
		v.ranges = append(v.ranges, r)
	}
	return v
}

// Validate appends a rejection for each invalid item to out, in ascending order of Index, or with
// allErrors also for the errors that would follow if they were corrected one by one (contract 1.6).
// known is the registry snapshot; now is in nanoseconds since the Unix epoch. It returns the number
// of valid items, and how many of them have the same detector, measure type and interval as an
// earlier one, which they replace in the archive (contract 1.3).
func (v *Validator) Validate(
	it *batch.Items, known *batch.Detectors, now int64, allErrors bool, out *batch.Rejections,
) (valid, duplicates int) {
	v.latest = now + v.tolerance
	v.follower.use(known)
	clear(v.hints)
	v.detectors = v.follower.find(&it.Columns, v.detectors[:0])
	v.types = v.types[:0]
	for t := range it.Types() {
		code := it.TypeCode(t)
		rule := typeRule{allowed: validTypeCode(code), valueRange: finite}
		if i := v.allowed.find(code); i >= 0 && rule.allowed {
			rule.valueRange = v.ranges[i]
		} else if len(v.ranges) > 0 {
			rule.allowed = false
		}
		v.types = append(v.types, rule)
	}
	faults := it.Faults
	for row := range it.Rows() {
		var fault *batch.Fault
		if len(faults) > 0 && faults[0].Row == uint32(row) {
			fault, faults = &faults[0], faults[1:]
		}
		code, field, detail := v.check(it, row, fault, 0)
		if code == contract.OK {
			valid++
			continue
		}
		out.Add(row, code, field, detail)
		if allErrors {
			v.addOthers(it, row, fault, code, field, out)
		}
		v.detectors[row] = unknown
	}
	for index := it.Rows(); index < it.Count; index++ {
		out.Add(index, contract.BatchLimitExceeded, contract.FieldItem, nil) // rule 1
	}
	return valid, v.seen.count(it, v.detectors)
}

// addOthers adds the errors of a row that follow its first one. A field with an error is not
// examined further, except that an invalid interval may also end in the future.
func (v *Validator) addOthers(
	it *batch.Items, row int, fault *batch.Fault, code contract.Code, field contract.Field, out *batch.Rejections,
) {
	var ignored contract.FieldSet
	var detail []byte
	for field != contract.FieldItem {
		if code == contract.InvalidInterval {
			field = contract.FieldTimestampFrom
		}
		ignored |= field.Bit()
		if code, field, detail = v.check(it, row, fault, ignored); code != contract.OK {
			out.Add(row, code, field, detail)
		}
	}
}

// anyValue applies to the value of an item whose measure type has an error.
var anyValue = typeRule{allowed: true, valueRange: finite}

// check applies the rules of contract 1.2 to a row, in order. It returns the code of the
// first rule that the row breaks, the invalid field, and the input to quote or the allowed range,
// or contract.OK. Rule 1, the batch limit, concerns only items without a row. Rules that need an
// ignored field are skipped.
func (v *Validator) check(
	it *batch.Items, row int, fault *batch.Fault, ignored contract.FieldSet,
) (code contract.Code, field contract.Field, detail []byte) {
	if fault != nil {
		rest := fault.Without(ignored)
		if code, field := rest.First(); code != contract.OK { // 2 to 6
			return code, field, it.RawOf(row, field)
		}
	}
	kind := &anyValue
	if !ignored.Has(contract.FieldMeasureTypeCode) {
		kind = &v.types[it.Type[row]]
	}
	from, to := it.From[row], it.To[row]
	switch {
	case v.detectors[row] == unknown && !ignored.Has(contract.FieldDetectorCode): // 7
		return contract.UnknownDetector, contract.FieldDetectorCode, v.detail(it.Code(row), v.hint(it.Code(row)))
	case !kind.allowed: // 8
		return contract.UnknownMeasureType, contract.FieldMeasureTypeCode, it.TypeCode(int(it.Type[row]))
	case from == batch.NoTime && !ignored.Has(contract.FieldTimestampFrom): // 9
		return contract.InvalidTimestamp, contract.FieldTimestampFrom, it.RawOf(row, contract.FieldTimestampFrom)
	case to == batch.NoTime && !ignored.Has(contract.FieldTimestampTo):
		return contract.InvalidTimestamp, contract.FieldTimestampTo, it.RawOf(row, contract.FieldTimestampTo)
	case to < from && ignored&interval == 0: // 10
		return contract.InvalidInterval, contract.FieldTimestampTo, v.detail(v.time(0, to), v.time(1, from))
	case to > v.latest && !ignored.Has(contract.FieldTimestampTo): // 11
		return contract.TimestampInFuture, contract.FieldTimestampTo, v.time(0, to)
	case !kind.has(it.Value[row]) && !ignored.Has(contract.FieldValue): // 12
		return contract.InvalidValue, contract.FieldValue, v.detail(v.number(it.Value[row]), kind.text)
	case it.HasQuality(row) && !v.quality.has(it.Quality[row]) && !ignored.Has(contract.FieldQuality): // 13
		return contract.InvalidQuality, contract.FieldQuality, v.detail(v.number(it.Quality[row]), v.quality.text)
	}
	return contract.OK, contract.FieldItem, nil
}

// interval is what rule 10 needs.
const interval = contract.FieldSet(1<<contract.FieldTimestampFrom | 1<<contract.FieldTimestampTo)

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

// unknown is the ordinal of a detector that is not in the registry, or of a rejected row.
const unknown = math.MaxUint32

// follower looks up codes in a registry snapshot. Batches list detectors in a stable order, so it
// first tries the detector that followed the current one last time. A hit saves computing a hash
// and a cache miss in the table (BenchmarkLookup).
type follower struct {
	known *batch.Detectors
	next  []uint32 // ordinal → ordinal that followed it last time
	last  uint32   // ordinal of the previous row's detector
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

// find appends the ordinal of each row's code to dst, or unknown.
func (f *follower) find(c *batch.Columns, dst []uint32) []uint32 {
	if len(f.next) == 0 {
		return append(dst, slices.Repeat([]uint32{unknown}, c.Rows())...)
	}
	last := f.last
	for row := range c.Rows() {
		code, ord := c.Code(row), f.next[last]
		if !equal(f.known.Code(int(ord)), code) {
			n, ok := f.known.Find(code)
			if !ok {
				dst = append(dst, unknown)
				continue
			}
			ord = uint32(n)
			f.next[last] = ord
		}
		dst, last = append(dst, ord), ord
	}
	f.last = last
	return dst
}

// equal is bytes.Equal without a call for codes of the usual length.
func equal(a, b []byte) bool {
	n, le := len(a), binary.LittleEndian
	switch {
	case n != len(b):
		return false
	case n >= 8 && n <= 16:
		return le.Uint64(a) == le.Uint64(b) && le.Uint64(a[n-8:]) == le.Uint64(b[n-8:])
	case n >= 4 && n < 8:
		return le.Uint32(a) == le.Uint32(b) && le.Uint32(a[n-4:]) == le.Uint32(b[n-4:])
	}
	return string(a) == string(b)
}

// identities counts items of a batch with the same detector, measure type and interval, which
// replace each other in the archive. It is a hash set with open addressing, at most half full,
// whose memory is reused for the next batch.
type identities struct {
	seed  [4]uint64 // random, so that a client cannot choose items that collide
	slots []uint32  // row + 1 in the low bits, part of the hash in the high bits; 0 if empty
	rows  uint32    // mask of the low bits

	from, to int64  // interval of the last row added, which most rows of a batch share
	interval uint64 // hash of from and to
}

func newIdentities() identities {
	return identities{seed: [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}}
}

// count returns how many rows have the same identity as an earlier row. detectors are the ordinals
// of the rows' codes.
func (d *identities) count(it *batch.Items, detectors []uint32) (duplicates int) {
	d.rows = 1<<bits.Len(uint(len(detectors))) - 1
	size := 2 << bits.Len(uint(len(detectors)))
	d.slots = slices.Grow(d.slots[:0], size)[:size]
	clear(d.slots)
	for row, detector := range detectors {
		if detector != unknown && d.add(it, detectors, uint32(row)) {
			duplicates++
		}
	}
	return duplicates
}

// add adds a row to the table unless an earlier row has the same identity, which it reports.
func (d *identities) add(it *batch.Items, detectors []uint32, row uint32) (duplicate bool) {
	if from, to := it.From[row], it.To[row]; from != d.from || to != d.to || d.interval == 0 {
		d.from, d.to, d.interval = from, to, d.mix(uint64(from)^d.seed[0], uint64(to)^d.seed[1])
	}
	h := d.mix(d.interval^d.seed[2], (uint64(detectors[row])<<32|uint64(it.Type[row]))^d.seed[3])
	mask, tag := uint64(len(d.slots)-1), uint32(h>>32)&^d.rows
	for at := h & mask; ; at = (at + 1) & mask {
		slot := d.slots[at]
		if slot == 0 {
			d.slots[at] = tag | (row + 1)
			return false
		}
		if slot&^d.rows != tag {
			continue
		}
		other := slot&d.rows - 1
		if it.From[other] == it.From[row] && it.To[other] == it.To[row] && it.Type[other] == it.Type[row] &&
			detectors[other] == detectors[row] {
			return true
		}
	}
}

func (*identities) mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
