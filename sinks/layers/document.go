package layers

import (
	"bytes"
	"net/http"
	"time"
)

// document is the layer in one time zone, scope and format. What is served of it
// is immutable; parts and pages belong to the builder.
type document struct {
	bodies       [encodings]body
	modified     time.Time // when these bodies were built, to the second
	lastModified []byte    // the same as a header
	parts        []*part
	pages        []*page
}

// part is a bucket's share of a document.
type part struct {
	*piece // nil where no street of the bucket has a period to show
	bucket *bucket
	from   instant // reference times from…
	until  instant // …to before this one give these bytes
}

func (p *part) fits(b *bucket, ref instant) bool {
	return p.bucket == b && p.from <= ref && ref < p.until
}

// press makes the documents of one zone, scope and format.
type press struct {
	scope  scope
	format format
	*writer
	*compressor
	picked []*period // scratch memory
	plain  []byte    // likewise
}

// print gives the document at the reference time; old, if there is one and nothing has
// changed. Parts and pages of old that still fit are taken over.
func (p *press) print(old *document, buckets []*bucket, ref instant, now time.Time) *document {
	if old == nil {
		old = &document{}
	}
	parts, changed := p.parts(old.parts, buckets, ref)
	if !changed && old.lastModified != nil {
		partsReused.Add(len(parts))
		return old
	}
	d := &document{parts: parts, pages: p.pages(old.pages, parts), modified: old.modified, lastModified: old.lastModified}
	d.bodies = p.bodies(d.pages)
	if !bytes.Equal(old.bodies[identity].etag, d.bodies[identity].etag) {
		d.modified = now.Truncate(time.Second)
		d.lastModified = []byte(d.modified.UTC().Format(http.TimeFormat))
	}
	return d
}

// parts gives a part for each bucket; those of before where they fit. Both are in the order of
// their streets.
func (p *press) parts(before []*part, buckets []*bucket, ref instant) (parts []*part, changed bool) {
	changed = len(before) != len(buckets)
	parts = make([]*part, 0, len(buckets))
	for _, b := range buckets {
		for len(before) > 0 && before[0].bucket.first().compare(b.first()) < 0 {
			before = before[1:]
		}
		var old *part
		if len(before) > 0 && before[0].bucket.first() == b.first() {
			old = before[0]
		}
		if old == nil || !old.fits(b, ref) {
			old, changed = p.part(old, b, ref), true
		}
		parts = append(parts, old)
	}
	return parts, changed
}

// part writes a bucket's streets. A street without a period to show is left out. Where
// the text is that of old, the bucket's part so far, it is not compressed again.
func (p *press) part(old *part, b *bucket, ref instant) *part {
	made := &part{bucket: b, from: ref, until: never}
	plain := p.plain[:0]
	for _, s := range b.streets {
		var until instant
		p.picked, until = p.scope.pick(p.picked[:0], s, ref)
		made.until = min(made.until, until)
		if len(p.picked) == 0 {
			continue
		}
		if p.format == jsonText && len(plain) > 0 {
			plain = append(plain, ',')
		}
		plain = p.append(p.format, plain, s, p.picked)
	}
	p.plain = plain
	switch {
	case len(plain) == 0:
	case old != nil && old.piece != nil && bytes.Equal(old.forms[identity], plain):
		made.piece = old.piece
	default:
		made.piece = p.piece(bytes.Clone(plain))
		partsBuilt.Inc()
	}
	return made
}

// pages puts the parts into pages; those of before where nothing has changed.
func (p *press) pages(before []*page, parts []*part) (pages []*page) {
	known := make(map[key]*page, len(before))
	for _, old := range before {
		known[old.start] = old
	}
	for from, to := range runs(len(parts), pageBuckets/2, func(i int) bool { return parts[i].bucket.opensPage() }) {
		made := &page{start: parts[from].bucket.first(), between: betweens[p.format], follows: len(pages) > 0}
		for _, part := range parts[from:to] {
			if part.piece != nil {
				made.pieces = append(made.pieces, part.piece)
			}
		}
		old := known[made.start]
		switch {
		case len(made.pieces) == 0:
			continue
		case old != nil && old.same(made):
			made = old
		default:
			made.fill()
		}
		pages = append(pages, made)
	}
	return pages
}

// What stands around the pages of a document and between its pieces. Protobuf has nothing there.
var (
	opens    = [formats]*piece{protobuf: {}, jsonText: stored(jsonOpen)}
	betweens = [formats]*piece{jsonText: stored(",")}
	closes   = [formats]*piece{protobuf: {}, jsonText: stored(jsonClose)}
)
