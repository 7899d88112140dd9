package decode

import (
	"errors"
	"fmt"
	"io"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// Config bounds what one body may hold.
type Config struct {
	BatchLimit int `koanf:"batch_limit"` // items that are examined (contract 1.2)
	HardLimit  int `koanf:"hard_limit"`  // items at which the request is refused (contract 1.1)
	MaxDepth   int `koanf:"max_depth"`   // nesting of objects and arrays
}

// DefaultConfig is the specification's limit of 14,000 items, ten times that
// before the request as a whole is refused, and a nesting of 64.
func DefaultConfig() Config {
	return Config{BatchLimit: 14_000, HardLimit: 140_000, MaxDepth: 64}
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.BatchLimit >= 1 && c.BatchLimit <= 1_000_000, "batch_limit is %d, must be 1 to 1000000: each item within it takes about 60 bytes of memory", c.BatchLimit)
	check(c.HardLimit >= c.BatchLimit && c.HardLimit <= 100_000_000,
		"hard_limit is %d, must be batch_limit (%d) to 100000000: items between the limits are rejected one by one", c.HardLimit, c.BatchLimit)
	check(c.MaxDepth >= 4 && c.MaxDepth <= 10_000, "max_depth is %d, must be 4 to 10000: a measurement is at depth 3", c.MaxDepth)
	return errors.Join(errs...)
}

// Decoder decodes one body at a time and keeps its memory for the next. It is
// not safe for concurrent use.
type Decoder struct {
	cfg Config
	lexer
	types   typeMemo
	from    timeMemo
	to      timeMemo
	layouts layouts
	learn   learner
	off     bool // tests: no prediction
}

// New makes a decoder; cfg has to be valid.
func New(cfg Config) *Decoder {
	d := &Decoder{cfg: cfg}
	d.lexer.init(cfg.MaxDepth)
	d.types.init()
	return d
}

// Decode reads r to its end and fills it, whose memory it reuses. Nothing in it
// points into the decoder.
//
// The error is a *contract.APIError (INVALID_JSON, INVALID_TYPE, MISSING_FIELD,
// DUPLICATE_FIELD, TOO_MANY_ITEMS) or r's own error, whichever comes first in the
// stream. it is then undefined.
func (d *Decoder) Decode(r io.Reader, it *batch.Items) error {
	it.Reset()
	d.lexer.reset(r)
	d.types.reset()
	if err := d.body(it); err != nil {
		return err
	}
	return nil
}

// body is the root object up to the end of the stream.
func (d *Decoder) body(it *batch.Items) error {
	d.skipBOM()
	switch c := d.next(); {
	case c == '{':
		d.pos++
		d.depth = 1
	case c == '[':
		return wrongRoot("an array")
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
			return refuse(contract.DuplicateField, "measurements stands twice in the request; send it once")
		}
		found = true
		if err := d.measurements(it); err != nil {
			return err
		}
	}
	if !d.atEnd() {
		return d.err
	}
	if !found {
		return refuse(contract.MissingField, `the request has no member "measurements"`)
	}
	return nil
}

// measurements is the array of items.
func (d *Decoder) measurements(it *batch.Items) error {
	switch d.next() {
	case '[':
		d.pos++
	case 'n':
		if !d.skipValue() {
			return d.err
		}
		return refuse(contract.MissingField, "measurements is null; it has to be an array")
	case '{':
		return refuse(contract.InvalidType, "measurements is an object; it has to be an array")
	default:
		if !d.skipValue() {
			return d.err
		}
		return refuse(contract.InvalidType, "measurements has to be an array")
	}
	d.depth = 2
	for more := d.firstItem(); more; more = d.nextItem() {
		if it.Count == d.cfg.HardLimit {
			return refuse(contract.TooManyItems, fmt.Sprintf("measurements has more than %d items; send batches of up to %d", d.cfg.HardLimit, d.cfg.BatchLimit))
		}
		if it.Count >= d.cfg.BatchLimit {
			d.skipValue()
		} else if d.off || !d.predicted(it) {
			d.item(it)
		}
		it.Count++
	}
	d.depth = 1
	return d.err
}

// firstItem is true when an item starts after '['. It leaves the white space before the item unread, for it
// belongs to the layout.
func (d *Decoder) firstItem() bool {
	mark := d.mark()
	if d.next() == ']' {
		d.pos++
		return false
	}
	d.back(mark)
	return d.err == nil
}

// nextItem is true when a ',' announces one more item after the one just read.
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
	return refuse(contract.InvalidType, `the request is `+what+`; it has to be an object with a member "measurements"`)
}

func refuse(code contract.Code, description string) error {
	return &contract.APIError{Code: code, Description: description, Parameter: "measurements"}
}

// errEnd is the lexer's own mark for the end of the stream.
var errEnd = errors.New("end of the body")
