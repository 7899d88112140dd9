package decode

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

const (
	maxPieces  = 12      // maximum number of values in a predictable item
	maxLayout  = 1 << 10 // maximum size of a predictable item in bytes
	maxLayouts = 4       // maximum number of layouts that are remembered
)

// layout is the text of an item around its values. An item that matches it byte for byte and has
// valid values is valid JSON, because the item from which the layout was learned is valid.
type layout struct {
	head   glue             // before the first value
	pieces [maxPieces]piece // the values; the last piece's after continues up to the first value of the next item
	n      int              // number of pieces
	tail   glue             // from the last value to the end of the item
	least  int              // bytes of an item without its values
}

type piece struct {
	field    contract.Field // FieldItem for an unknown member
	quote    bool           // the value is a string
	interval bool           // the next two values are timestampFrom and timestampTo
	after    glue           // text after the value, including a string's closing quote
}

// glue is a constant text that can be compared quickly.
type glue struct {
	words, masks [4]uint64 // its first 32 bytes
	n            int
	rest         []byte
}

func (g *glue) set(text ...[]byte) {
	all := bytes.Join(text, nil)
	*g = glue{n: len(all)}
	for i, c := range all[:min(len(all), 32)] {
		g.words[i/8] |= uint64(c) << (i % 8 * 8)
		g.masks[i/8] |= 0xff << (i % 8 * 8)
	}
	g.rest = all[min(len(all), 32):]
}

// at reports whether buf[p:end] starts with g. After end, buf must have Padding bytes.
func (g *glue) at(buf []byte, p, end int) bool {
	return g.starts((*[32]byte)(buf[p:])) && g.ends(buf, p, end)
}

// starts and ends are the two parts of at, which the compiler inlines.
func (g *glue) starts(b *[32]byte) bool {
	return (binary.LittleEndian.Uint64(b[:])^g.words[0])&g.masks[0]|(binary.LittleEndian.Uint64(b[8:])^g.words[1])&g.masks[1]|
		(binary.LittleEndian.Uint64(b[16:])^g.words[2])&g.masks[2]|(binary.LittleEndian.Uint64(b[24:])^g.words[3])&g.masks[3] == 0
}

func (g *glue) ends(buf []byte, p, end int) bool {
	return p+g.n <= end && (len(g.rest) == 0 || string(buf[p+32:p+g.n]) == string(g.rest))
}

// layouts holds the most recent layouts.
type layouts struct {
	maxBytes int // maximum size of an item whose layout is learned
	list     [maxLayouts]layout
	n        int // number of layouts in list
	current  int // index of the layout that matched last
	oldest   int // index of the layout to replace next
}

// decodePredicted decodes up to limit items with one of the known layouts, and returns their
// number. If none matches, it changes nothing and returns 0.
func (d *Decoder) decodePredicted(it *batch.Items, limit int) int {
	for try := range d.layouts.n {
		k := d.layouts.current + try
		if k >= d.layouts.n {
			k -= d.layouts.n
		}
		if n := d.follow(&d.layouts.list[k], it, limit); n > 0 {
			d.layouts.current = k
			return n
		}
	}
	return 0
}

// follow decodes up to limit items, as long as they match l and are in the buffer, and returns
// their number.
func (d *Decoder) follow(l *layout, it *batch.Items, limit int) (n int) {
	buf, q, end := d.buf, d.pos, d.end
	if !l.head.at(buf, q, end) {
		return 0
	}
	q += l.head.n
	limit = min(limit, (end-q)/l.least+1)
	row, used, c := it.Rows(), len(it.Codes), len(it.Codes)
	it.Extend(limit)
	it.Codes = slices.Grow(it.Codes, end-q+8)
	codes := it.Codes[:cap(it.Codes)]
	it.Quality[row] = math.NaN()
	last, size := 0, end+1 // position and size of the last interval and the text before it, which most rows repeat
	for k := 0; ; {
		pc := &l.pieces[k]
		switch pc.field {
		case contract.FieldValue:
			it.Value[row], q = readNumber(buf, q)
		case contract.FieldQuality:
			it.Quality[row], q = readNumber(buf, q)
		case contract.FieldDetectorCode:
			c, q = copyCode(codes, used, buf, q, end)
		case contract.FieldMeasureTypeCode:
			it.Type[row], q = d.types.predict(buf, q, end, it)
		case contract.FieldTimestampFrom, contract.FieldTimestampTo:
			q = d.timestamp(pc.field, it, row, q)
		default:
			q = pc.skip(buf, q, end)
		}
		if q < 0 {
			break
		}
		if pc.interval {
			if q+size <= end && string(buf[q:q+size]) == string(buf[last:last+size]) {
				it.From[row], it.To[row] = it.From[row-1], it.To[row-1]
				q += size
			} else {
				last, q = q, d.interval(l, k, it, row, q)
				size = q - last
			}
			k += 2
			pc = &l.pieces[k]
		}
		next := pc.after.starts((*[32]byte)(buf[q:])) && pc.after.ends(buf, q, end)
		k++
		if next && k < l.n {
			q += pc.after.n
			continue
		}
		if k < l.n || !next && !l.tail.at(buf, q, end) {
			break
		}
		used = c
		it.CodeEnd[row] = uint32(c)
		d.pos = q + l.tail.n
		row++
		if n++; !next || n == limit {
			break
		}
		q += pc.after.n
		it.Quality[row] = math.NaN()
		k = 0
	}
	it.Codes = codes[:used]
	it.Truncate(row)
	return n
}

// interval reads the text after piece k of l, which starts at p, and the next two timestamps. It
// returns the end of the second timestamp, or of the buffer if the lexer must decode the item.
func (d *Decoder) interval(l *layout, k int, it *batch.Items, row, p int) int {
	for last := k + 2; k < last; {
		after := &l.pieces[k].after
		if !after.at(d.buf, p, d.end) {
			return d.end
		}
		k++
		if p = d.timestamp(l.pieces[k].field, it, row, p+after.n); p < 0 {
			return d.end
		}
	}
	return p
}

// timestamp reads the timestamp of field f at p. It returns the end of the text, or -1 if the lexer
// must decode it.
func (d *Decoder) timestamp(f contract.Field, it *batch.Items, row, p int) (next int) {
	if f == contract.FieldTimestampFrom {
		it.From[row], next = d.from.read(d.buf, p, d.end)
	} else {
		it.To[row], next = d.to.read(d.buf, p, d.end)
	}
	return next
}

// skip returns the end of the value at p, or -1 if the lexer must decode it.
func (pc *piece) skip(buf []byte, p, end int) int {
	if pc.quote {
		return endOfString(buf, p, end)
	}
	_, next := readNumber(buf, p)
	return next
}

// copyCode copies the plain ASCII text at p in buf to dst[at:]. It returns the ends of the text in
// dst and in buf; the latter is -1 if the lexer must decode the text. It may write up to eight
// bytes past the end in dst.
func copyCode(dst []byte, at int, buf []byte, p, end int) (stop, next int) {
	for last := min(end, p+batch.MaxCodeLen); p < last; p += 8 {
		w := binary.LittleEndian.Uint64(buf[p:])
		binary.LittleEndian.PutUint64(dst[at:], w)
		if m := special(w); m != 0 {
			n := bits.TrailingZeros64(m) / 8
			return at + n, p + n
		}
		at += 8
	}
	return at, -1
}

// endOfString returns the end of the plain ASCII text at p. The caller, or the glue after the
// value, checks that a double quote follows.
func endOfString(buf []byte, p, end int) int {
	for p < end {
		if m := special(binary.LittleEndian.Uint64(buf[p:])); m != 0 {
			return p + bits.TrailingZeros64(m)/8
		}
		p += 8
	}
	return p
}

// learner records the positions of an item's values while the lexer decodes it.
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

// add records the value between from and to, which include the quotes of a string. plain is false
// if the string has escapes.
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

// add adds the layout of the item that ends at pos, and makes it the first one to try. The item
// must be valid and completely in buf.
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
	to.n, to.least = l.n, pos-l.start
	to.head.set(buf[l.start:l.values[0].from])
	for i := range l.n {
		v, end := &l.values[i], pos
		p := &to.pieces[i]
		p.field, p.quote = v.field, v.quote
		p.interval = i+2 < l.n && isTime(l.values[i+1].field) && isTime(l.values[i+2].field)
		if i+1 < l.n {
			end = l.values[i+1].from
		}
		p.after.set(buf[v.to:end])
		to.least -= v.to - v.from
	}
	tail := buf[l.values[l.n-1].to:pos]
	to.tail.set(tail)
	to.pieces[l.n-1].after.set(tail, []byte{','}, buf[l.start:l.values[0].from])
}

func isTime(f contract.Field) bool {
	return f == contract.FieldTimestampFrom || f == contract.FieldTimestampTo
}

// typeMemo maps the measure types of a batch to ordinals. A batch has few types, in a stable order,
// so the next type is usually the one that followed the current one last time.
type typeMemo struct {
	seed  maphash.Seed
	known map[uint64]uint32 // hash → ordinal; if two hashes are equal, the later type gets the next free hash
	list  []knownType       // indexed by ordinal
	last  uint32            // ordinal of the previous row's type
}

type knownType struct {
	next        uint32 // ordinal of the type that followed it last time
	length      int    // of the text
	first, mask uint64 // the first bytes of the text with the double quote after it
}

func (m *typeMemo) reset() {
	clear(m.known)
	m.list, m.last = m.list[:0], 0
}

// predict reads the measure type at p in buf. It returns the type's ordinal and end; the end is -1
// if the lexer must decode the type.
func (m *typeMemo) predict(buf []byte, p, end int, it *batch.Items) (kind uint32, next int) {
	if len(m.list) > 0 {
		kind = m.list[m.last].next
		t := &m.list[kind]
		q := p + t.length
		if (binary.LittleEndian.Uint64(buf[p:])^t.first)&t.mask == 0 &&
			(t.length < 8 || q < end && buf[q] == '"' && string(buf[p:q]) == string(it.TypeCode(int(kind)))) {
			m.last = kind
			return kind, q
		}
	}
	q := endOfString(buf, p, end)
	if q-p > maxTypeLen || q >= end || buf[q] != '"' {
		return 0, -1
	}
	return m.find(buf[p:q], it), q
}

func (m *typeMemo) find(text []byte, it *batch.Items) uint32 {
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
			t := knownType{next: kind, length: len(text), mask: 1<<(8*len(text)+8) - 1} // all ones from a length of 7
			var first [8]byte
			copy(first[copy(first[:], text):], `"`)
			t.first = binary.LittleEndian.Uint64(first[:])
			m.list = append(m.list, t)
		}
		m.list[m.last].next, m.last = kind, kind
		return kind
	}
}

// timeMemo keeps the last timestamp, because most rows of a batch repeat it, or at least its day
// and format. The zero value matches only zero bytes, and has the length 0: the glue after the
// value then does not match, because it does not begin with a zero byte.
//
//	2006-01-02T15:04:05.000Z
//	date       clock   zone, with a fraction
//	    date'
type timeMemo struct {
	date, date2, clock uint64 // eight bytes each; date and date2 overlap
	zone, mask         uint64 // up to eight bytes
	n                  int    // length of the text
	ns                 int64  // the timestamp
	midnight           int64  // the timestamp with the clock 00:00:00
}

const (
	dateLen  = len("2006-01-02T")
	clockEnd = dateLen + len("15:04:05")
)

// read reads the timestamp at p in buf. next is its end, or -1 if the lexer must decode it.
func (m *timeMemo) read(buf []byte, p, end int) (ns int64, next int) {
	b := buf[p : p+clockEnd+8]
	clock := binary.LittleEndian.Uint64(b[dateLen:])
	if binary.LittleEndian.Uint64(b) == m.date && binary.LittleEndian.Uint64(b[dateLen-8:]) == m.date2 &&
		(binary.LittleEndian.Uint64(b[clockEnd:])^m.zone)&m.mask == 0 {
		if clock == m.clock {
			return m.ns, p + m.n
		}
		if ns, ok := readClock(clock); ok {
			m.clock, m.ns = clock, m.midnight+ns
			return m.ns, p + m.n
		}
	}
	q := endOfString(buf, p, end)
	if q >= end {
		return 0, -1
	}
	ns, ok := parseTimestamp(buf[p:q])
	if !ok {
		return 0, -1
	}
	if zone := q - p - clockEnd; zone > 0 && zone <= 8 && b[dateLen+5] == ':' {
		days, _ := date(b) // not from ns: a leap second belongs to the previous day
		m.date, m.date2, m.clock = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[dateLen-8:]), clock
		m.mask = ^uint64(0) >> (64 - 8*zone)
		m.zone = binary.LittleEndian.Uint64(b[clockEnd:]) & m.mask
		m.n, m.ns, m.midnight = q-p, ns, days*day+ns%second
	}
	return ns, q
}

// readClock parses a little-endian 15:04:05. ok is false if it is invalid or has a leap second.
func readClock(clock uint64) (ns int64, ok bool) {
	const (
		zeros = 0x30303a30303a3030 // 00:00:00
		carry = 0x76767f76767f7676 // sets the highest bit of a byte that is at least 10 (digits) or 1 (colons)
	)
	t := clock ^ zeros
	if t&0xf0f0f0f0f0f0f0f0|(t+carry)&highs != 0 {
		return 0, false
	}
	t = t*10 + t>>8
	h, m, s := int64(t&0xff), int64(t>>24&0xff), int64(t>>48&0xff)
	return h*hour + m*minute + s*second, h <= 23 && m <= 59 && s <= 59
}
