package layers

import (
	"bytes"
	"net/http"
	"slices"
	"time"
)

// document is the layer in one time zone, scope and format. The bodies and their times are immutable;
// parts and pages belong to the builder.
type document struct {
	bodies       [encodings]body
	modified     time.Time // when these bodies were built, in whole seconds
	lastModified []byte    // modified as a header value
	parts        []*part
	pages        []*page
}

// part is a bucket's share of a document.
type part struct {
	*piece // nil where no street of the bucket has a period to show
	bucket *bucket
	from   instant // the piece is valid for reference times [from, until)
	until  instant
}

// renderer renders the documents of one time zone, scope and format.
type renderer struct {
	scope  scope
	format format
	*writer
	*compressor
	picked []*period // scratch memory
	plain  []byte    // scratch memory
}

// render returns the document at the reference time. It returns old if nothing has changed, and
// reuses the parts and pages of old that are still valid. old may be nil.
func (r *renderer) render(old *document, buckets []*bucket, ref instant, now time.Time) *document {
	if old == nil {
		old = &document{}
	}
	parts, changed := r.parts(old.parts, buckets, ref)
	if !changed && old.lastModified != nil {
		partsReused.Add(float64(len(parts)))
		return old
	}
	d := &document{parts: parts, pages: r.pages(old.pages, parts), modified: old.modified, lastModified: old.lastModified}
	d.bodies = r.bodies(d.pages)
	if !bytes.Equal(old.bodies[identity].etag, d.bodies[identity].etag) {
		d.modified = now.Truncate(time.Second)
		d.lastModified = []byte(d.modified.UTC().Format(http.TimeFormat))
	}
	return d
}

// parts returns a part for each bucket, the old one where it is still valid. Old parts and buckets are
// in the order of their streets.
func (r *renderer) parts(old []*part, buckets []*bucket, ref instant) (parts []*part, changed bool) {
	changed = len(old) != len(buckets)
	parts = make([]*part, 0, len(buckets))
	for _, b := range buckets {
		for len(old) > 0 && old[0].bucket.first().compare(b.first()) < 0 {
			old = old[1:]
		}
		var p *part
		if len(old) > 0 && old[0].bucket.first() == b.first() {
			p = old[0]
		}
		if p == nil || p.bucket != b || ref < p.from || ref >= p.until {
			p, changed = r.part(p, b, ref), true
		}
		parts = append(parts, p)
	}
	return parts, changed
}

// part renders a bucket's streets, without those that have no period to show. If the text equals that
// of the old part it is not compressed again.
func (r *renderer) part(old *part, b *bucket, ref instant) *part {
	made := &part{bucket: b, from: ref, until: never}
	plain := r.plain[:0]
	for _, s := range b.streets {
		var until instant
		r.picked, until = r.scope.pick(r.picked[:0], s, ref)
		made.until = min(made.until, until)
		if len(r.picked) == 0 {
			continue
		}
		if r.format == jsonText && len(plain) > 0 {
			plain = append(plain, ',')
		}
		plain = r.append(r.format, plain, s, r.picked)
	}
	r.plain = plain
	switch {
	case len(plain) == 0:
	case old != nil && old.piece != nil && bytes.Equal(old.forms[identity], plain):
		made.piece = old.piece
	default:
		made.piece = r.piece(bytes.Clone(plain))
		partsBuilt.Inc()
	}
	return made
}

// pages arranges the parts in pages and reuses old pages with the same pieces.
func (r *renderer) pages(old []*page, parts []*part) (pages []*page) {
	known := make(map[key]*page, len(old))
	for _, p := range old {
		known[p.start] = p
	}
	for from, to := range runs(len(parts), pageBuckets/2, func(i int) bool { return parts[i].bucket.startsPage() }) {
		p := &page{start: parts[from].bucket.first(), separator: separators[r.format], follows: len(pages) > 0}
		for _, part := range parts[from:to] {
			if part.piece != nil {
				p.pieces = append(p.pieces, part.piece)
			}
		}
		if len(p.pieces) == 0 {
			continue
		}
		if k := known[p.start]; k != nil && k.follows == p.follows && slices.Equal(k.pieces, p.pieces) {
			p = k
		} else {
			p.fill()
		}
		pages = append(pages, p)
	}
	return pages
}

// What is around the pages of a document, and between its pieces. Protobuf needs nothing there.
var (
	openings   = [formats]*piece{protobuf: {}, jsonText: stored([]byte(jsonOpen))}
	separators = [formats]*piece{jsonText: stored([]byte(","))}
	closings   = [formats]*piece{protobuf: {}, jsonText: stored([]byte(jsonClose))}
)

// page is a run of pieces in contiguous memory for each encoding. Pages are the unit that a document
// shares with its predecessor. The pieces are views of the page, so that nothing is kept twice.
type page struct {
	start     key // the first street of the first bucket
	pieces    []*piece
	separator *piece // nil: none
	follows   bool   // a separator precedes the first piece too
	content   checksum
	forms     [encodings][]byte
}

// fill concatenates the pieces in each encoding.
func (p *page) fill() {
	for _, text := range p.texts(identity) {
		p.content = p.content.add(text)
	}
	for e := range encodings {
		p.join(e, nil, nil)
	}
}

// join concatenates head, the pieces in one encoding, and tail.
func (p *page) join(e encoding, head, tail []byte) (whole []byte) {
	whole = bytes.Join(slices.Concat([][]byte{head}, p.texts(e), [][]byte{tail}), nil)
	p.forms[e] = whole[len(head) : len(whole)-len(tail) : len(whole)-len(tail)]
	rest := p.forms[e]
	for i, piece := range p.pieces {
		if p.separates(i) {
			rest = rest[len(p.separator.forms[e]):]
		}
		n := len(piece.forms[e])
		piece.forms[e], rest = rest[:n:n], rest[n:]
	}
	return whole
}

// texts returns the pieces and separators in one encoding.
func (p *page) texts(e encoding) [][]byte {
	list := make([][]byte, 0, 2*len(p.pieces))
	for i, piece := range p.pieces {
		if p.separates(i) {
			list = append(list, p.separator.forms[e])
		}
		list = append(list, piece.forms[e])
	}
	return list
}

// separates reports whether a separator precedes the piece.
func (p *page) separates(i int) bool { return p.separator != nil && (i > 0 || p.follows) }
