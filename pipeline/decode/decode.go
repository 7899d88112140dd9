package decode

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/contract"
)

// Config bounds the contents of a body.
type Config struct {
	// maximum number of items in a batch that are validated; any others are rejected individually
	// (contract 1.2)
	BatchLimit int `setting:"batch_limit"`
	// maximum number of items in a batch; with more, the whole request is rejected (contract 1.1).
	// 0: ten times BatchLimit
	HardLimit int `setting:"hard_limit"`
	MaxDepth  int `setting:"-"` // maximum nesting of objects and arrays in a body
}

// DefaultConfig returns a batch limit of 14,000 items and a nesting depth of 64.
func DefaultConfig() Config {
	return Config{BatchLimit: 14_000, MaxDepth: 64}
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	return errors.Join(
		settings.Within("batch_limit", c.BatchLimit, 1, 1_000_000, "each takes about 60 bytes of memory"),
		settings.Check(c.HardLimit == 0 || c.HardLimit >= c.BatchLimit,
			"hard_limit is %d, must be 0 (ten times batch_limit) or at least batch_limit", c.HardLimit),
	)
}

// Decoder decodes one body at a time and reuses its memory. It is not safe for concurrent use.
type Decoder struct {
	cfg Config
	lexer
	types   typeMemo
	from    timeMemo
	to      timeMemo
	layouts layouts
	learn   learner
}

// New returns a decoder. cfg must be valid.
func New(cfg Config) *Decoder {
	cfg.HardLimit = cmp.Or(cfg.HardLimit, 10*cfg.BatchLimit)
	d := &Decoder{cfg: cfg, layouts: layouts{maxBytes: maxLayout}, types: typeMemo{seed: maphash.MakeSeed(), known: map[uint64]uint32{}}}
	d.lexer.init(cfg.MaxDepth)
	return d
}

// Decode reads a text to its end and decodes it into items, whose memory it reuses.
//
// The error is a *contract.APIError (INVALID_JSON, INVALID_TYPE, MISSING_FIELD, DUPLICATE_FIELD,
// TOO_MANY_ITEMS) or the error of the source, whichever comes first in the text. items.Count is
// then the number of items that began before the error; the other fields are undefined.
func (d *Decoder) Decode(from Text, items *batch.Items) error {
	items.Reset()
	d.lexer.reset(from)
	d.types.reset()
	d.ahead()
	if d.end >= 3 && string(d.buf[:3]) == "\xef\xbb\xbf" { // byte order mark
		d.pos = 3
	}
	switch c := d.next(); {
	case c == '{':
		d.pos++
		d.depth = 1
	case c == '[':
		return wrongRoot("an array")
	case c == '\x1f' && d.end-d.pos > 1 && d.buf[d.pos+1] == 0x8b: // the gzip magic
		d.syntax("it is compressed twice; compress it once")
		return d.err
	default:
		if !d.skipValue() {
			return d.err
		}
		return wrongRoot("neither an object nor an array")
	}
	found := false
	for more := d.firstMember(); more; more = d.nextMember() {
		if string(d.text) != "measurements" || d.long {
			d.skipValue()
			continue
		}
		if found {
			return invalid(contract.DuplicateField, "duplicate member \"measurements\"")
		}
		found = true
		if err := d.measurements(items); err != nil {
			return err
		}
	}
	if !d.atEnd() {
		return d.err
	}
	if !found {
		return invalid(contract.MissingField, `the member "measurements" is missing`)
	}
	return nil
}

func (d *Decoder) measurements(it *batch.Items) error {
	switch d.next() {
	case '[':
		d.pos++
	case 'n':
		if !d.skipValue() {
			return d.err
		}
		return invalid(contract.MissingField, "measurements is null; it must be an array")
	case '{':
		return invalid(contract.InvalidType, "measurements is an object; it must be an array")
	default:
		if !d.skipValue() {
			return d.err
		}
		return invalid(contract.InvalidType, "measurements must be an array")
	}
	d.depth = 2
	for more := d.firstItem(); more; more = d.nextItem() {
		if it.Count == d.cfg.HardLimit {
			return invalid(contract.TooManyItems,
				fmt.Sprintf("measurements has more than %d items; send at most %d per batch", d.cfg.HardLimit, d.cfg.BatchLimit))
		}
		if it.Count >= d.cfg.BatchLimit {
			d.skipValue()
			it.Count++
		} else if n := d.decodePredicted(it, d.cfg.BatchLimit-it.Count); n > 0 {
			it.Count += n
		} else {
			d.item(it)
			it.Count++
		}
	}
	d.depth = 1
	return d.err
}

// firstItem reports whether an item follows '['. It does not consume the white space before the
// item, which is part of the layout.
func (d *Decoder) firstItem() bool {
	d.ahead()
	start := d.base + int64(d.pos)
	if d.next() == ']' {
		d.pos++
		return false
	}
	if start >= d.base { // if not, there is more white space than a layout may contain
		d.pos = int(start - d.base)
	}
	d.ahead()
	return d.err == nil
}

func (d *Decoder) nextItem() bool {
	if d.err != nil {
		return false
	}
	switch d.next() {
	case ',':
		d.pos++
		d.ahead()
		return true
	case ']':
		d.pos++
		return false
	}
	d.unexpected("expected ',' or ']' after an item")
	return false
}

func wrongRoot(what string) error {
	return invalid(contract.InvalidType, `the request is `+what+`; it must be an object with the member "measurements"`)
}

func invalid(code contract.Code, description string) error {
	return &contract.APIError{Code: code, Description: description, Parameter: "measurements"}
}

// errEnd marks the regular end of the stream in the lexer.
var errEnd = errors.New("end of the body")

const required = contract.FieldSet(1<<contract.FieldDetectorCode | 1<<contract.FieldMeasureTypeCode |
	1<<contract.FieldTimestampFrom | 1<<contract.FieldTimestampTo | 1<<contract.FieldValue)

// maxTypeLen is the maximum length of a measure type code (contract 1.2, rule 8). Longer codes are
// truncated to maxTypeLen+1 bytes, so that they remain invalid.
const maxTypeLen = 64

type row struct {
	kind           uint32
	from, to       int64
	value, quality float64

	seen, present contract.FieldSet
	batch.Fault
}

// item decodes an item of any shape and learns its layout.
func (d *Decoder) item(it *batch.Items) {
	start := d.base
	d.learn.begin(d.pos)
	r := row{from: batch.NoTime, to: batch.NoTime, value: math.NaN(), quality: math.NaN()}
	if d.next() != '{' {
		d.skipValue()
		r.NotObject = true
	} else {
		d.pos++
		d.depth++
		codes := len(it.Codes)
		for more := d.firstMember(); more; more = d.nextMember() {
			d.member(it, &r, codes)
		}
		d.depth--
		r.Absent = required &^ r.present
	}
	faulty := r.NotObject || r.LinkID || r.Duplicate|r.Absent|r.WrongType != 0
	if faulty {
		r.Row = uint32(it.Count)
		it.Faults = append(it.Faults, r.Fault)
		if d.err == nil && d.base == start && d.pos-d.learn.start <= quotable {
			quote(it, &r.Fault, d.buf[d.learn.start:d.pos])
		}
	} else if d.err == nil && d.learn.complete && d.base == start {
		d.layouts.add(&d.learn, d.buf, d.pos)
	}
	it.CodeEnd = append(it.CodeEnd, uint32(len(it.Codes)))
	it.Type = append(it.Type, r.kind)
	it.From = append(it.From, r.from)
	it.To = append(it.To, r.to)
	it.Value = append(it.Value, r.value)
	it.Quality = append(it.Quality, r.quality)
}

// member decodes the value of the member whose name is in d.text.
func (d *Decoder) member(it *batch.Items, r *row, codes int) {
	f := fieldOf(d.text, d.long)
	if f == contract.FieldItem {
		d.skipUnknown()
		return
	}
	r.Duplicate |= r.seen & f.Bit()
	r.seen |= f.Bit()
	c := d.next()
	if c == 'n' {
		d.literal("null")
		return
	}
	r.present |= f.Bit()
	at := d.pos
	switch f {
	case contract.FieldLinkID:
		r.LinkID = true
		d.skipValue()
		return
	case contract.FieldValue, contract.FieldQuality:
		if c != '-' && (c < '0' || c > '9') {
			r.WrongType |= f.Bit()
			d.skipValue()
			return
		}
		if d.num() {
			d.learn.add(f, at, d.pos, false, true)
			if f == contract.FieldValue {
				r.value = d.number()
			} else {
				r.quality = d.number()
			}
		}
	default:
		if c != '"' {
			r.WrongType |= f.Bit()
			d.skipValue()
			return
		}
		if d.str() {
			d.learn.add(f, at, d.pos, true, d.plain)
			switch f {
			case contract.FieldDetectorCode:
				it.Codes = append(it.Codes[:codes], d.text[:min(len(d.text), batch.MaxCodeLen+1)]...)
			case contract.FieldMeasureTypeCode:
				r.kind = d.types.find(d.text[:min(len(d.text), maxTypeLen+1)], it)
			case contract.FieldTimestampFrom:
				r.from = d.time(it, f)
			case contract.FieldTimestampTo:
				r.to = d.time(it, f)
			}
		}
	}
}

// skipUnknown skips the value of an unknown member.
func (d *Decoder) skipUnknown() {
	c := d.next()
	at := d.pos
	if !d.skipValue() {
		return
	}
	switch c {
	case '{', '[':
		d.learn.complete = false
	case 't', 'f', 'n': // the value is part of the glue
	default:
		d.learn.add(contract.FieldItem, at, d.pos, c == '"', c != '"' || d.plain)
	}
}

// time parses d.text as a timestamp. For an invalid one, it keeps the text and returns NoTime.
func (d *Decoder) time(it *batch.Items, f contract.Field) int64 {
	if ns, ok := parseTimestamp(d.text); ok && !d.long {
		return ns
	}
	it.Quote(it.Count, f, d.text)
	return batch.NoTime
}

func fieldOf(name []byte, long bool) contract.Field {
	if long {
		return contract.FieldItem
	}
	switch string(name) {
	case "detectorCode":
		return contract.FieldDetectorCode
	case "measureTypeCode":
		return contract.FieldMeasureTypeCode
	case "timestampFrom":
		return contract.FieldTimestampFrom
	case "timestampTo":
		return contract.FieldTimestampTo
	case "value":
		return contract.FieldValue
	case "quality":
		return contract.FieldQuality
	case "linkId":
		return contract.FieldLinkID
	}
	return contract.FieldItem
}
