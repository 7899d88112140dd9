package layers

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// piece is a run of streets as a view shows it in a time zone. Each form is made when it is first
// needed.
type piece struct {
	streets []*street
	view    view
	zone    *zone
	every   bool   // also show streets without a period; true for changes
	bare    int    // this many streets at the end are shown without their code
	own     bool   // made for a single request
	sum     uint64 // hash of what is shown; pieces of a time zone with equal hashes have the same text
	forms   [numFormats][numEncodings]atomic.Pointer[form]
	making  sync.Mutex // held while a form is made
}

// digest sets p.sum and returns p, or nil if p shows nothing. It does not make the text, because
// clients may never request it.
func (c *compressor) digest(p *piece) *piece {
	c.content = c.content[:0]
	for s, periods := range c.shown(p) {
		c.content = s.appendContent(c.content, periods)
	}
	if len(c.content) == 0 {
		return nil
	}
	p.sum = xxhash.Sum64(c.content)
	return p
}

// write sets c.text to the text of the piece.
func (c *compressor) write(f format, p *piece) {
	if c.format != f || c.piece != p {
		c.text, c.format, c.piece = c.append(f, c.text[:0], p), f, p
	}
}

// form returns a form of the piece for a request, and makes it first if necessary.
func (p *piece) form(f format, e encoding) *form {
	if existing := p.forms[f][e].Load(); existing != nil {
		return existing
	}
	c := p.zone.compressors.borrow()
	defer p.zone.compressors.release(c)
	return p.make(f, e, c)
}

// make returns a form, which it makes with c if it does not exist. The builder calls it with its
// own compressor, so it waits at most for a request that is making a form of the same piece.
func (p *piece) make(f format, e encoding, c *compressor) *form {
	p.making.Lock()
	defer p.making.Unlock()
	if existing := p.forms[f][e].Load(); existing != nil {
		return existing
	}
	c.write(f, p)
	encoded := c.form(c.text, c.values, e, p.every && !p.own)
	formsMade.Inc()
	p.forms[f][e].Store(encoded)
	return encoded
}

// withStreets returns a piece that shares the forms of p, for other streets with the same text.
func (p *piece) withStreets(streets []*street, v view) *piece {
	same := &piece{streets: streets, view: v, zone: p.zone, sum: p.sum}
	for f, e := range variants {
		same.forms[f][e].Store(p.forms[f][e].Load())
	}
	return same
}

// part is the content that a bucket contributes to documents. All views with the same whole and a
// time in [from, until) share it.
type part struct {
	*piece      // nil if no street of the bucket has a period to show
	zone        *zone
	whole       bool
	from, until instant // values of view.at
}

// part returns the bucket's part for a view, and makes it if necessary. Parts with the same content
// share their forms.
func (b *bucket) part(z *zone, v view, c *compressor) *part {
	if i := slices.IndexFunc(b.parts, func(p part) bool {
		return p.zone == z && p.whole == v.whole && p.from <= v.at && v.at < p.until
	}); i >= 0 {
		partsReused.Inc()
		return &b.parts[i]
	}
	p := c.digest(&piece{streets: b.streets, view: v, zone: z})
	added := part{piece: p, zone: z, whole: v.whole, from: c.from, until: c.until}
	if p != nil {
		for _, parts := range [][]part{b.parts, b.oldParts} {
			if i := slices.IndexFunc(parts, func(k part) bool { return k.zone == z && k.piece != nil && k.sum == p.sum }); i >= 0 {
				added.piece = parts[i].piece.withStreets(b.streets, v)
				break
			}
		}
	}
	partsBuilt.Inc()
	b.parts = append(b.parts, added)
	return &b.parts[len(b.parts)-1]
}

// demand records which documents clients request, and in which forms.
type demand struct {
	any  moment // of the last request
	last [numFormats][numEncodings]moment
}

// moment is a time in Unix seconds.
type moment struct{ atomic.Int64 }

// noteSeconds is the resolution of moments: each write slows down the processors that read the
// value.
const noteSeconds = 30

func (m *moment) note(now time.Time) {
	if now.Unix() >= m.Load()+noteSeconds {
		m.Store(now.Unix())
	}
}

// within reports whether a time within keep before now may have been noted.
func (m *moment) within(keep time.Duration, now time.Time) bool {
	return now.Unix()-m.Load() < int64(keep/time.Second)+noteSeconds
}

// formSet is a set of forms. An element is true if the form is in the set.
type formSet [numFormats][numEncodings]bool

// within returns the forms that were requested within keep.
func (d *demand) within(keep time.Duration, now time.Time) (set formSet) {
	for f, e := range variants {
		set[f][e] = d.last[f][e].within(keep, now)
	}
	return set
}

// document is the layer in one time zone and scope. It is immutable, except that bodies are made on
// request.
type document struct {
	zone         *zone
	scope        scope
	modified     time.Time // when this content was built, in whole seconds; later than for the previous content
	built        bool      // false: clients have not requested it recently; modified is the previous one, and no other field is set
	pieces       []*piece  // of each bucket; some are nil
	sum          uint64    // hash of the content
	lastModified []byte    // modified as a header value
	etags        [numFormats][numEncodings][]byte
	bodies       [numFormats][numEncodings]atomic.Pointer[body]
	filling      sync.Mutex // held while a body is made
	followed     followed
	replaced     chan struct{} // closed when the layer no longer contains the document
}

// body returns the document's body in a format and encoding. It compresses only the pieces that are
// not compressed yet.
func (d *document) body(f format, e encoding) *body {
	if b := d.bodies[f][e].Load(); b != nil {
		return b
	}
	d.filling.Lock()
	defer d.filling.Unlock()
	if b := d.bodies[f][e].Load(); b != nil {
		return b
	}
	parallel(len(d.pieces), func(i int) {
		if p := d.pieces[i]; p != nil {
			p.form(f, e)
		}
	})
	b := join(d.pieces, f, e)
	if b.size <= maxJoinedSize {
		b.segments = [][]byte{slices.Concat(b.segments...)}
	}
	d.bodies[f][e].Store(b)
	return b
}

// maxJoinedSize is the maximum size of a body that is copied into one segment, to be sent in one
// write.
const maxJoinedSize = 256 << 10

// size returns the total size of the pieces in a format and encoding.
func (d *document) size(f format, e encoding) (total int) {
	for _, p := range d.pieces {
		if p != nil {
			if form := p.forms[f][e].Load(); form != nil {
				total += len(form.bytes)
			}
		}
	}
	return total
}

// hasOnly reports whether the document has no bodies in other forms than these.
func (d *document) hasOnly(forms formSet) bool {
	for f, e := range variants {
		if !forms[f][e] && d.bodies[f][e].Load() != nil {
			return false
		}
	}
	return true
}

// parallel calls do for each index below n, on all processors, and waits for all calls.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
