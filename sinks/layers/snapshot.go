package layers

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// snapshot is the finished layer: all documents that a client can ask for. It is
// immutable, but for the documents of a time zone: an answer is one document, and each is
// replaced as soon as the next one is finished, so that a build needs memory for the
// largest document and not for a second layer.
type snapshot struct {
	zones   map[string]zoneLayer // by the name of the time zone
	ref     instant              // the reference time
	streets int
	leftOut int // as the builder's
	built   time.Time
	number  uint64 // of builds, this one included
}

// zoneLayer has a document for each scope (as in builder.scopes) and format.
type zoneLayer [][formats]atomic.Pointer[document]

func (z zoneLayer) document(scope int, f format) *document { return z[scope][f].Load() }

// each gives the documents in the order that they are built in.
func (z zoneLayer) each(yield func(*document) bool) {
	for scope := range z {
		for f := range formats {
			if !yield(z.document(scope, f)) {
				return
			}
		}
	}
}

// size counts the bytes of all bodies.
func (s *snapshot) size() (total int) {
	for _, layer := range s.zones {
		for d := range layer.each {
			for _, b := range d.bodies {
				total += b.size
			}
		}
	}
	return total
}

// builder makes snapshots, each from the one before. One goroutine at a time.
type builder struct {
	scopes     []scope // the whole layer first, then the horizons
	zones      map[string]time.Time
	maxStreets int
	streets    []*street // in order, at most maxStreets
	leftOut    int       // forecasts left out since the feed last gave its whole content
	buckets    []*bucket
	compressor *compressor
	last       *snapshot // nil: there was no layer yet
}

func newBuilder(cfg Config) *builder {
	b := &builder{maxStreets: cfg.MaxStreets, scopes: []scope{wholeLayer()}, zones: map[string]time.Time{}, compressor: newCompressor()}
	for _, minutes := range cfg.Horizons {
		b.scopes = append(b.scopes, atHorizon(minutes))
	}
	return b
}

// zoneGrace is for how long a time zone that is no more asked for is still
// served: the keys that named it are in use until all is ready for the new ones.
const zoneGrace = time.Minute

// ask says which time zones are wanted from now on.
func (b *builder) ask(zones []string, now time.Time) {
	for zone, until := range b.zones {
		if until.IsZero() && !slices.Contains(zones, zone) {
			b.zones[zone] = now.Add(zoneGrace)
		}
	}
	for _, zone := range zones {
		b.zones[zone] = time.Time{}
	}
}

// update takes changes in and builds the layer at now.
func (b *builder) update(c changes, now time.Time) *snapshot {
	if !c.empty() {
		b.take(c, now)
	}
	maps.DeleteFunc(b.zones, func(_ string, until time.Time) bool { return !until.IsZero() && until.Before(now) })
	return b.build(instantOf(now.Truncate(time.Minute)), now)
}

// take changes the streets. Those beyond maxStreets are lost until the feed gives them
// again, so they stay counted until it gives its whole content.
func (b *builder) take(c changes, now time.Time) {
	b.streets = c.apply(b.streets, instantOf(now))
	over := max(0, len(b.streets)-b.maxStreets)
	if c.replace {
		b.leftOut = 0
	}
	b.leftOut += over
	b.streets = b.streets[:len(b.streets)-over]
}

// extend builds what is missing for the zones asked for, without any change
// of the layer. Without a layer there is nothing to do.
func (b *builder) extend(now time.Time) *snapshot {
	if b.last == nil {
		return nil
	}
	return b.build(b.last.ref, now)
}

func (b *builder) build(ref instant, now time.Time) *snapshot {
	shown := showing(b.streets, ref)
	b.buckets = cut(shown, b.buckets)
	next := &snapshot{zones: make(map[string]zoneLayer, len(b.zones)), ref: ref, streets: len(shown), leftOut: b.leftOut, built: now, number: 1}
	if b.last != nil {
		next.number = b.last.number + 1
	}
	for zone := range b.zones {
		layer := zoneLayer(nil)
		if b.last != nil {
			layer = b.last.zones[zone]
		}
		if layer == nil {
			layer = make(zoneLayer, len(b.scopes))
		}
		b.renew(layer, zone, ref, now)
		next.zones[zone] = layer
	}
	b.last = next
	return next
}

// renew brings the documents of a time zone up to the reference time.
func (b *builder) renew(layer zoneLayer, zone string, ref instant, now time.Time) {
	w := newWriter(zone)
	for i, scope := range b.scopes {
		for f := range formats {
			p := press{scope: scope, format: f, writer: w, compressor: b.compressor}
			layer[i][f].Store(p.print(layer.document(i, f), b.buckets, ref, now))
		}
	}
}
