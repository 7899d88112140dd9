package decode

import (
	"encoding/binary"
	"math"
	"math/bits"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

const (
	maxPieces  = 12      // values in an item that can be predicted
	maxLayout  = 1 << 10 // bytes of such an item
	maxLayouts = 4       // layouts that may alternate in a batch
)

// layout is the text of an item around its values: each value is preceded by its glue, which includes double quotes, and the
// last one is followed by tail. An item that matches it byte for byte, with valid values in between, is valid JSON, because
// the item that it was learned from was.
type layout struct {
	pieces [maxPieces]piece
	n      int
	tail   []byte
}

type piece struct {
	glue  []byte
	field contract.Field // FieldItem for an unknown member
	quote bool           // the value is a string
}

// layouts holds the most recent layouts; current is the one that matched last.
type layouts struct {
	maxBytes int // of an item that is learned
	list     [maxLayouts]layout
	n        int
	current  int
	oldest   int
}

// predicted decodes an item by one of the known layouts. It returns false and changes nothing if none matches.
func (d *Decoder) predicted(it *batch.Items) bool {
	for try := range d.layouts.n {
		k := d.layouts.current + try
		if k >= d.layouts.n {
			k -= d.layouts.n
		}
		codes := len(it.Codes)
		if d.follow(&d.layouts.list[k], it) {
			d.layouts.current = k
			return true
		}
		it.Codes = it.Codes[:codes]
	}
	return false
}

// follow decodes the item at pos by a layout.
func (d *Decoder) follow(l *layout, it *batch.Items) bool {
	buf, p, end := d.buf, d.pos, d.end
	var kind uint32
	var from, to int64
	var value float64
	quality := math.NaN()
	for k := range l.n {
		pc := &l.pieces[k]
		g := pc.glue
		if p+len(g) > end || string(buf[p:p+len(g)]) != string(g) {
			return false
		}
		p += len(g)
		var next int
		switch pc.field {
		case contract.FieldDetectorCode:
			next = endOfString(buf, p, end)
			if next-p > batch.MaxCodeLen {
				return false
			}
			it.Codes = append(it.Codes, buf[p:next]...)
		case contract.FieldMeasureTypeCode:
			kind, next = d.types.predict(buf, p, end, it)
		case contract.FieldTimestampFrom:
			from, next = d.from.read(buf, p, end)
		case contract.FieldTimestampTo:
			to, next = d.to.read(buf, p, end)
		case contract.FieldValue:
			value, next = readNumber(buf, p)
		case contract.FieldQuality:
			quality, next = readNumber(buf, p)
		default:
			if pc.quote {
				next = endOfString(buf, p, end)
			} else {
				_, next = readNumber(buf, p)
			}
		}
		if next < 0 || next > end {
			return false
		}
		p = next
	}
	if p+len(l.tail) > end || string(buf[p:p+len(l.tail)]) != string(l.tail) {
		return false
	}
	d.pos = p + len(l.tail)
	it.CodeEnd = append(it.CodeEnd, uint32(len(it.Codes)))
	it.Type = append(it.Type, kind)
	it.From = append(it.From, from)
	it.To = append(it.To, to)
	it.Value = append(it.Value, value)
	it.Quality = append(it.Quality, quality)
	return true
}

// endOfString returns the end of the plain ASCII text at p. The following glue verifies that a double quote is there.
func endOfString(buf []byte, p, end int) int {
	for p < end {
		if m := special(binary.LittleEndian.Uint64(buf[p:])); m != 0 {
			return p + bits.TrailingZeros64(m)/8
		}
		p += 8
	}
	return p
}

// learner records the positions of the values of an item while it is decoded.
type learner struct {
	start    int
	complete bool // the item can be predicted
	n        int
	values   [maxPieces]struct {
		field    contract.Field
		quote    bool
		from, to int // of the value in the buffer, without quotes
	}
}

func (l *learner) begin(pos int) { l.start, l.n, l.complete = pos, 0, true }

// add records a number.
func (l *learner) add(f contract.Field, from, to int) { l.note(f, from, to, false) }

// addString records a string; from and to include its quotes.
func (l *learner) addString(f contract.Field, from, to int, plain bool) {
	l.complete = l.complete && plain
	l.note(f, from+1, to-1, true)
}

func (l *learner) note(f contract.Field, from, to int, quote bool) {
	if l.n == maxPieces {
		l.complete = false
		return
	}
	v := &l.values[l.n]
	v.field, v.from, v.to, v.quote = f, from, to, quote
	l.n++
}

// add makes the layout of the item that ends at pos the first one to try. The item is valid and completely in buf.
func (ls *layouts) add(l *learner, buf []byte, pos int) {
	if pos-l.start > ls.maxBytes {
		return
	}
	k := ls.n
	if ls.n < maxLayouts {
		ls.n++
	} else {
		k = ls.oldest
		ls.oldest = (ls.oldest + 1) % maxLayouts
	}
	ls.current = k
	to := &ls.list[k]
	to.n = l.n
	from := l.start
	for i := range l.n {
		v := &l.values[i]
		p := &to.pieces[i]
		p.glue = append(p.glue[:0], buf[from:v.from]...)
		p.field, p.quote = v.field, v.quote
		from = v.to
	}
	to.tail = append(to.tail[:0], buf[from:pos]...)
}
