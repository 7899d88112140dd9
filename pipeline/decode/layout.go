package decode

import (
	"encoding/binary"
	"hash/maphash"
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

// add records a value. from and to of a string include its quotes; plain is false if it has escapes.
func (l *learner) add(f contract.Field, from, to int, quote, plain bool) {
	if l.complete = l.complete && plain && l.n < maxPieces; !l.complete {
		return
	}
	if quote {
		from, to = from+1, to-1
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

// typeMemo finds the measure types of a batch. They are few and in a stable order, so the next type is usually the one that
// followed the current one before.
type typeMemo struct {
	seed  maphash.Seed
	known map[uint64]uint32 // hash → ordinal; of equal hashes the later ones are stored under the next number
	next  []uint32          // type → its last successor
	last  uint32
}

func (m *typeMemo) reset() {
	clear(m.known)
	m.next, m.last = m.next[:0], 0
}

// predict reads the type at p in buf. It returns its ordinal and its end, or -1 if the lexer must decode it.
func (m *typeMemo) predict(buf []byte, p, end int, it *batch.Items) (kind uint32, next int) {
	if len(m.next) > 0 {
		kind = m.next[m.last]
		text := it.TypeCode(int(kind))
		q := p + len(text)
		if q < end && buf[q] == '"' && string(buf[p:q]) == string(text) {
			m.last = kind
			return kind, q
		}
	}
	q := endOfString(buf, p, end)
	if q-p > maxTypeLen || q >= end {
		return 0, -1
	}
	return m.find(buf[p:q], it), q
}

func (m *typeMemo) find(text []byte, it *batch.Items) uint32 {
	if len(m.next) > 0 {
		if kind := m.next[m.last]; string(it.TypeCode(int(kind))) == string(text) {
			m.last = kind
			return kind
		}
	}
	for h := maphash.Bytes(m.seed, text); ; h++ {
		kind, found := m.known[h]
		if found && string(it.TypeCode(int(kind))) != string(text) {
			continue
		}
		if !found {
			kind = uint32(it.Types())
			it.TypeText = append(it.TypeText, text...)
			it.TypeEnd = append(it.TypeEnd, uint32(len(it.TypeText)))
			m.known[h] = kind
			m.next = append(m.next, kind)
		}
		m.next[m.last], m.last = kind, kind
		return kind
	}
}

// timeMemo keeps the last timestamp: most rows of a batch repeat it, or at least its day.
type timeMemo struct {
	text [maxTimestamp]byte
	n    int
	ns   int64
	day  int64 // start of its day
}

const dayLen = len("2006-01-02T")

// read reads the timestamp at p in buf. It returns its end, or -1 if the lexer must decode it.
func (m *timeMemo) read(buf []byte, p, end int) (ns int64, next int) {
	if q := p + m.n; m.n > 0 && q < end && buf[q] == '"' && string(buf[p:q]) == string(m.text[:m.n]) {
		return m.ns, q
	}
	q := endOfString(buf, p, end)
	if q >= end {
		return 0, -1
	}
	ns, ok := m.sameDay(buf[p:q])
	if !ok {
		if ns, ok = parseTimestamp(buf[p:q]); !ok {
			return 0, -1
		}
		days, _ := date(buf[p:q]) // not from ns: a leap second belongs to the previous day
		m.day = days * day
	}
	m.n = copy(m.text[:], buf[p:q])
	m.ns = ns
	return ns, q
}

// sameDay reads a timestamp of the most common form, 2006-01-02T15:04:05Z, on the day of the previous one.
func (m *timeMemo) sameDay(s []byte) (ns int64, ok bool) {
	if len(s) != len("2006-01-02T15:04:05Z") || m.n < dayLen || string(s[:dayLen]) != string(m.text[:dayLen]) {
		return 0, false
	}
	h, okH := two(s[11:])
	m60, okM := two(s[14:])
	sec, okS := two(s[17:])
	if !okH || !okM || !okS || h > 23 || m60 > 59 || sec > 59 || s[13] != ':' || s[16] != ':' || s[19] != 'Z' {
		return 0, false
	}
	return m.day + int64(h)*hour + int64(m60)*minute + int64(sec)*second, true
}
