package layers

import (
	"maps"
	"slices"
	"time"
)

// snapshot is the finished layer: all documents that a client can ask for. It is
// immutable, so that two horizons that were asked for at a time are of one layer. What
// has not changed it shares with the one before.
type snapshot struct {
	zones   map[string]zoneLayer // by the name of the time zone
	ref     instant              // the reference time
	streets int
	leftOut int // as the builder's
	built   time.Time
	number  uint64 // of builds, this one included
}

// zoneLayer has a document for each scope (as in builder.scopes) and format.
type zoneLayer [][formats]*document

// each gives the documents in the order that they are built in.
func (z zoneLayer) each(yield func(*document) bool) {
	for scope := range z {
		for f := range formats {
			if !yield(z[scope][f]) {
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
		var last zoneLayer
		if b.last != nil {
			last = b.last.zones[zone]
		}
		next.zones[zone] = b.renewed(last, zone, ref, now)
	}
	b.last = next
	return next
}

// renewed gives the documents of a time zone at the reference time. last are those of
// before, nil if there are none.
func (b *builder) renewed(last zoneLayer, zone string, ref instant, now time.Time) zoneLayer {
	w := newWriter(zone)
	layer := make(zoneLayer, len(b.scopes))
	for i, scope := range b.scopes {
		for f := range formats {
			var old *document
			if last != nil {
				old = last[i][f]
			}
			p := press{scope: scope, format: f, writer: w, compressor: b.compressor}
			layer[i][f] = p.print(old, b.buckets, ref, now)
		}
	}
	return layer
}
