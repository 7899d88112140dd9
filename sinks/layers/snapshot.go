package layers

import (
	"maps"
	"slices"
	"time"
)

// snapshot is the finished layer: every document that a client can ask for. It is immutable and
// shares unchanged documents with its predecessor.
type snapshot struct {
	zones   map[string]zoneLayer // by the name of the time zone
	ref     instant              // the reference time
	streets int
	covered instant // the end of the last period; 0 if there is no street
	until   []byte  // covered as a header value
	leftOut int     // as in builder
	built   time.Time
	number  uint64 // of builds, this one included
}

// zoneLayer has a document for each scope (as in builder.scopes) and format.
type zoneLayer [][formats]*document

// each yields the documents in the order in which they are built.
func (z zoneLayer) each(yield func(*document) bool) {
	for scope := range z {
		for f := range formats {
			if !yield(z[scope][f]) {
				return
			}
		}
	}
}

// size returns the number of bytes of all bodies.
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

// builder makes snapshots, each from its predecessor. It is for one goroutine at a time.
type builder struct {
	scopes     []scope              // the whole layer, then the horizons
	zones      map[string]time.Time // time zones to build, until when; zero: indefinitely
	maxStreets int
	streets    []*street // in order, at most maxStreets
	leftOut    int       // forecasts over maxStreets since the feed last replaced everything
	buckets    []*bucket
	compressor *compressor
	last       *snapshot // nil before the first build
}

func newBuilder(cfg Config) *builder {
	b := &builder{maxStreets: cfg.MaxStreets, scopes: []scope{{whole: true}}, zones: map[string]time.Time{}, compressor: newCompressor()}
	for _, minutes := range cfg.Horizons {
		b.scopes = append(b.scopes, atHorizon(minutes))
	}
	return b
}

// zoneGrace is how long a time zone is still built after the keys that use it were replaced: the old
// keys are in use until everything is ready for the new ones.
const zoneGrace = time.Minute

// setZones sets the time zones to build.
func (b *builder) setZones(zones []string, now time.Time) {
	for zone, until := range b.zones {
		if until.IsZero() && !slices.Contains(zones, zone) {
			b.zones[zone] = now.Add(zoneGrace)
		}
	}
	for _, zone := range zones {
		b.zones[zone] = time.Time{}
	}
}

// update applies the changes and builds the layer at now. Streets over maxStreets are lost until the
// feed sends them again, so leftOut counts them until it replaces everything.
func (b *builder) update(c changes, now time.Time) *snapshot {
	if !c.empty() {
		b.streets = c.apply(b.streets, instantOf(now))
		over := max(0, len(b.streets)-b.maxStreets)
		if c.replace {
			b.leftOut = 0
		}
		b.leftOut += over
		b.streets = b.streets[:len(b.streets)-over]
	}
	maps.DeleteFunc(b.zones, func(_ string, until time.Time) bool { return !until.IsZero() && until.Before(now) })
	return b.build(instantOf(now.Truncate(time.Minute)), now)
}

// build renders the documents of all time zones at the reference time. Streets that have ended leave
// no trace, not even in the bucket boundaries: another replica may never have seen them.
func (b *builder) build(ref instant, now time.Time) *snapshot {
	shown := make([]*street, 0, len(b.streets))
	covered := instant(0)
	for _, s := range b.streets {
		if until := s.coveredUntil(); until > ref {
			shown, covered = append(shown, s), max(covered, until)
		}
	}
	b.buckets = cut(shown, b.buckets)
	next := &snapshot{zones: make(map[string]zoneLayer, len(b.zones)), ref: ref, streets: len(shown), covered: covered, leftOut: b.leftOut, built: now, number: 1}
	if b.last != nil {
		next.number = b.last.number + 1
	}
	if covered > 0 {
		next.until = covered.time().AppendFormat(nil, time.RFC3339)
	}
	for zone := range b.zones {
		var last zoneLayer
		if b.last != nil {
			last = b.last.zones[zone]
		}
		w := newWriter(zone)
		layer := make(zoneLayer, len(b.scopes))
		for i, scope := range b.scopes {
			for f := range formats {
				var old *document
				if last != nil {
					old = last[i][f]
				}
				r := renderer{scope: scope, format: f, writer: w, compressor: b.compressor}
				layer[i][f] = r.render(old, b.buckets, ref, now)
			}
		}
		next.zones[zone] = layer
	}
	b.last = next
	return next
}
