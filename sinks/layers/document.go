package layers

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// document is the layer in one time zone, scope and format. What is served of it
// is immutable; parts belong to the builder.
type document struct {
	bodies       [encodings]body
	modified     time.Time // when these bodies were built, to the second
	lastModified []byte    // the same as a header
	parts        []*part
}

// body is a finished answer.
type body struct {
	bytes []byte
	etag  []byte
}

// part is a bucket's share of a document. It has no bytes where no street of the
// bucket has a period to show.
type part struct {
	piece
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
	picked []*period
}

// print gives the document at the reference time; old, if there is one and nothing has
// changed. Parts of old that still fit are taken over.
func (p *press) print(old *document, buckets []*bucket, ref instant, now time.Time) *document {
	parts, changed := p.parts(old, buckets, ref)
	if old != nil && !changed {
		partsReused.Add(len(parts))
		return old
	}
	d := &document{parts: parts, modified: now.Truncate(time.Second)}
	d.lastModified = []byte(d.modified.UTC().Format(http.TimeFormat))
	plain, member := join(p.pieces(parts))
	for e, bytes := range [encodings][]byte{identity: plain, gzipped: member, zstandard: p.frame(plain)} {
		d.bodies[e] = body{bytes, fmt.Appendf(nil, `"%016x%s"`, xxhash.Sum64(bytes), etagSuffix[e])}
	}
	if old != nil && slices.Equal(old.bodies[identity].etag, d.bodies[identity].etag) { // other parts, the same in sum
		d.modified, d.lastModified = old.modified, old.lastModified
	}
	return d
}

// parts gives a part for each bucket; old ones where they fit. Both are in the order of
// their streets.
func (p *press) parts(old *document, buckets []*bucket, ref instant) (parts []*part, changed bool) {
	var before []*part
	if old != nil {
		before = old.parts
	}
	changed = len(before) != len(buckets)
	parts = make([]*part, 0, len(buckets))
	for _, b := range buckets {
		for len(before) > 0 && before[0].bucket.streets[0].id.compare(b.streets[0].id) < 0 {
			before = before[1:]
		}
		if len(before) > 0 && before[0].fits(b, ref) {
			parts = append(parts, before[0])
			continue
		}
		parts = append(parts, p.part(b, ref))
		changed = true
	}
	return parts, changed
}

// part writes a bucket's streets. A street without a period to show is left out.
func (p *press) part(b *bucket, ref instant) *part {
	made := &part{bucket: b, from: ref, until: never}
	for _, s := range b.streets {
		var until instant
		p.picked, until = p.scope.pick(p.picked[:0], s, ref)
		made.until = min(made.until, until)
		if len(p.picked) == 0 {
			continue
		}
		if p.format == jsonText && len(made.plain) > 0 {
			made.plain = append(made.plain, ',')
		}
		made.plain = p.append(p.format, made.plain, s, p.picked)
	}
	if len(made.plain) > 0 {
		made.deflated = p.blocks(made.plain)
	}
	partsBuilt.Inc()
	return made
}

// pieces lists what a document consists of, in order: the parts that have bytes, and in
// JSON what stands around and between them.
func (p *press) pieces(parts []*part) []*piece {
	list := make([]*piece, 0, 2*len(parts)+2)
	bracket := func(text string) {
		if p.format == jsonText {
			made := stored(text)
			list = append(list, &made)
		}
	}
	bracket(jsonOpen)
	first := true
	for _, part := range parts {
		if len(part.plain) == 0 {
			continue
		}
		if !first {
			bracket(",")
		}
		first = false
		list = append(list, &part.piece)
	}
	bracket(jsonClose)
	return list
}
