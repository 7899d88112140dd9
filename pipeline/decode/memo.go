package decode

import (
	"hash/maphash"

	"trafficd/pipeline/batch"
)

// typeMemo finds the measure types of a batch. They are few and in a stable order, so the next type is usually the one that
// followed the current one before.
type typeMemo struct {
	seed  maphash.Seed
	slots []uint32 // ordinal + 1; power of two, at most half full
	next  []uint32 // type → its last successor
	last  uint32
}

const fewTypes = 64

func (m *typeMemo) init() {
	m.seed = maphash.MakeSeed()
	m.slots = make([]uint32, 2*fewTypes)
}

func (m *typeMemo) reset() {
	m.slots = m.slots[:2*fewTypes]
	clear(m.slots)
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

// find returns the ordinal of a type, which it adds if it is new.
func (m *typeMemo) find(text []byte, it *batch.Items) uint32 {
	if 2*it.Types() >= len(m.slots) {
		m.grow(it)
	}
	at := m.slot(text, it)
	if m.slots[at] == 0 {
		it.TypeText = append(it.TypeText, text...)
		it.TypeEnd = append(it.TypeEnd, uint32(len(it.TypeText)))
		m.slots[at] = uint32(it.Types())
		m.next = append(m.next, m.slots[at]-1)
	}
	kind := m.slots[at] - 1
	m.next[m.last], m.last = kind, kind
	return kind
}

// slot returns the slot of a type, or the empty one where it belongs.
func (m *typeMemo) slot(text []byte, it *batch.Items) int {
	mask := len(m.slots) - 1
	for at := int(maphash.Bytes(m.seed, text)) & mask; ; at = (at + 1) & mask {
		if ord := m.slots[at]; ord == 0 || string(it.TypeCode(int(ord)-1)) == string(text) {
			return at
		}
	}
}

func (m *typeMemo) grow(it *batch.Items) {
	size := 2 * len(m.slots)
	if cap(m.slots) >= size {
		m.slots = m.slots[:size]
		clear(m.slots)
	} else {
		m.slots = make([]uint32, size)
	}
	for ord := range it.Types() {
		m.slots[m.slot(it.TypeCode(ord), it)] = uint32(ord) + 1
	}
}

// timeMemo keeps the last timestamp: most rows of a batch repeat it, or at least its day.
type timeMemo struct {
	text [maxTimestamp]byte
	n    int
	ns   int64
	day  int64 // start of its day
}

// dayLen is the length of the part that must be equal for sameDay.
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
