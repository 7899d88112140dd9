package layers

import (
	"net/http"
	"slices"
	"time"
)

// snapshot is the finished layer: every document that a client can request. It is immutable and
// shares unchanged documents and pieces with its predecessor.
type snapshot struct {
	state
	zones     map[string][]*document // keyed by the name of the time zone; indexed by scope, as in builder.scopes
	ref       instant                // the reference time
	streets   int                    // number of streets shown
	unlocated int                    // number of those whose code contains no location
	covered   instant                // the end of the last period; 0 if there is no street
	until     []byte                 // covered as a header value
	built     time.Time
	number    uint64 // number of builds, including this one
}

// state is the result of all updates so far.
type state struct {
	numbered []*street // all streets, at most maxStreets, ordered by key
	buckets  []*bucket
	removed  []removal
	oldest   uint64 // number of a build; removed contains all removals after it
	leftOut  int    // forecasts omitted because of maxStreets since the feed last replaced everything
}

// removal is a street that a build removed, or replaced by one with a different code.
type removal struct {
	*street
	number uint64 // number of the build
	at     time.Time
}

// document returns a document, or nil if there is no snapshot or if the zone is not in it.
func (s *snapshot) document(zone string, scope int) *document {
	if s == nil || s.zones[zone] == nil {
		return nil
	}
	return s.zones[zone][scope]
}

// replaceBy closes the channels of all documents that next does not contain.
func (s *snapshot) replaceBy(next *snapshot) {
	for name, documents := range s.zones {
		for i, d := range documents {
			if d.built && d != next.document(name, i) {
				close(d.replaced)
			}
		}
	}
}

func (s *snapshot) size() (total int) {
	for _, documents := range s.zones {
		for _, d := range documents {
			for f, e := range variants {
				if b := d.bodies[f][e].Load(); b != nil {
					total += b.size
				}
			}
		}
	}
	return total
}

// builder makes snapshots, each from its predecessor. It is not safe for concurrent use.
type builder struct {
	state
	scopes      []scope          // the whole layer, then the horizons
	farthest    instant          // the longest horizon
	zones       map[string]*zone // time zones to build
	maxStreets  int
	keepForms   time.Duration
	compressors *compressors
	ordered     []*street // the streets in the order of the layer
	ahead       []*bucket // buckets prepared for the next minute
	last        *snapshot // the latest snapshot; before the first build, an empty one
}

func newBuilder(cfg Config) *builder {
	b := &builder{
		maxStreets: cfg.MaxStreets, keepForms: cfg.KeepForms, compressors: newCompressors(), scopes: []scope{{whole: true}},
		zones: map[string]*zone{}, last: &snapshot{},
	}
	for _, minutes := range cfg.Horizons {
		b.scopes = append(b.scopes, atHorizon(minutes))
		b.farthest = max(b.farthest, atHorizon(minutes).horizon)
	}
	return b
}

// zoneGrace is how long a time zone is still built after the last API key that uses it is replaced.
// The old keys remain valid until everything is ready for the new ones.
const zoneGrace = time.Minute

func (b *builder) setZones(names []string, now time.Time) {
	for name, z := range b.zones {
		if z.until.IsZero() && !slices.Contains(names, name) {
			z.until = now.Add(zoneGrace)
		}
	}
	for _, name := range names {
		if b.zones[name] == nil {
			b.zones[name] = newZone(name, now, b.compressors)
		}
		b.zones[name].until = time.Time{}
	}
}

// number returns the number of the next build.
func (b *builder) number() uint64 { return b.last.number + 1 }

// update applies the changes and builds the layer at now. Streets over maxStreets are dropped until
// the feed sends them again, so leftOut counts them until the feed replaces everything.
func (b *builder) update(c changes, now time.Time) *snapshot {
	ref := instantOf(now.Truncate(time.Minute))
	if ref < b.last.ref { // the clock was set back, perhaps to before the periods
		for _, s := range b.numbered {
			s.reach = 0
		}
	}
	if !c.empty() {
		before := b.numbered
		streets, removed := c.apply(before, b.number(), ref, ref+b.farthest)
		if c.replace {
			b.leftOut = 0
		}
		kept, rest := b.limit(streets, ref)
		for _, s := range rest {
			if !s.ended(ref) {
				b.leftOut++
			}
			if _, served := search(before, s.id); served {
				removed = append(removed, s)
			}
		}
		b.numbered = kept
		b.remove(removed, now)
		b.ordered = b.order(removed)
	}
	for name, z := range b.zones {
		if !z.until.IsZero() && z.until.Before(now) {
			delete(b.zones, name)
		}
	}
	return b.build(ref, now)
}

// limit divides streets into at most maxStreets to keep and the rest. If there are too many, the
// rest includes all streets that have ended.
func (b *builder) limit(streets []*street, ref instant) (kept, rest []*street) {
	if len(streets) <= b.maxStreets {
		return streets, nil
	}
	for _, s := range streets {
		if s.ended(ref) || len(kept) == b.maxStreets {
			rest = append(rest, s)
		} else {
			kept = append(kept, s)
		}
	}
	return kept, rest
}

// order returns the streets in the order of the layer. Only the changed streets are sorted.
func (b *builder) order(removed []*street) []*street {
	var changed []*street
	gone := map[key]bool{} // also the previous forecasts of changed streets
	for _, s := range removed {
		gone[s.id] = true
	}
	for _, s := range b.numbered {
		if s.firstBuild == b.number() {
			changed, gone[s.id] = append(changed, s), true
		}
	}
	slices.SortFunc(changed, byPosition)
	ordered := make([]*street, 0, len(b.numbered))
	for _, s := range b.ordered {
		if gone[s.id] {
			continue
		}
		for len(changed) > 0 && byPosition(changed[0], s) < 0 {
			ordered, changed = append(ordered, changed[0]), changed[1:]
		}
		ordered = append(ordered, s)
	}
	return append(ordered, changed...)
}

// remove records removed streets for clients that follow the layer.
func (b *builder) remove(streets []*street, now time.Time) {
	b.removed = slices.DeleteFunc(slices.Clone(b.removed), func(r removal) bool { return now.Sub(r.at) > keepVersions })
	for _, s := range streets {
		b.removed = append(b.removed, removal{s, b.number(), now})
	}
	if len(b.removed) > b.maxStreets {
		b.removed, b.oldest = nil, b.number()
	}
}

// shown returns the streets that have not ended, in order, and the end of their last period. Ended
// streets must not affect bucket boundaries: another replica may never have received them.
func (b *builder) shown(ref instant) (shown []*street, covered instant) {
	shown = make([]*street, 0, len(b.ordered))
	for _, s := range b.ordered {
		if !s.ended(ref) {
			shown, covered = append(shown, s), max(covered, s.until)
		}
	}
	return shown, covered
}

// request is a document to build, in the forms that clients have requested recently.
type request struct {
	zone  *zone
	scope int // index in builder.scopes
	forms formSet
}

// requests returns the documents to build. Each build calls it only once, because clients' requests
// during the build may change the result.
func (b *builder) requests(now time.Time) (list []request) {
	for _, z := range b.zones {
		for i, scope := range b.scopes {
			if demand := z.demand(scope.whole); demand.any.within(b.keepForms, now) {
				list = append(list, request{z, i, demand.within(b.keepForms, now)})
			}
		}
	}
	return list
}

// prepare makes the requested parts of the buckets at the reference time. It drops parts whose
// interval has ended at keep, and forms that were not requested.
func (b *builder) prepare(buckets []*bucket, requests []request, ref, keep instant) {
	parallel(len(buckets), func(i int) {
		c := b.compressors.Get().(*compressor)
		defer b.compressors.put(c)
		k := buckets[i]
		k.parts = slices.DeleteFunc(k.parts, func(p part) bool { return p.until <= keep || b.zones[p.zone.name] != p.zone })
		for _, r := range requests {
			p := k.part(r.zone, b.scopes[r.scope].view(ref), c).piece
			if p == nil {
				continue
			}
			for f, e := range variants {
				if r.forms[f][e] {
					p.make(f, e, c)
				} else {
					p.forms[f][e].Store(nil)
				}
			}
		}
		k.oldParts = nil
	})
}

func (b *builder) prepareNext(now time.Time) {
	next := instantOf(now.Truncate(time.Minute).Add(time.Minute))
	shown, _ := b.shown(next)
	b.ahead = cut(shown, maxBucketStreets, b.buckets...)
	b.prepare(b.ahead, b.requests(now), next, b.last.ref)
}

// build builds the documents of all time zones at the reference time, except those that clients
// have not requested recently.
func (b *builder) build(ref instant, now time.Time) *snapshot {
	shown, covered := b.shown(ref)
	b.buckets = cut(shown, maxBucketStreets, append(b.buckets, b.ahead...)...)
	b.ahead = nil
	requests := b.requests(now)
	b.prepare(b.buckets, requests, ref, ref)
	next := &snapshot{
		state: b.state, zones: make(map[string][]*document, len(b.zones)), ref: ref, streets: len(shown), covered: covered,
		built: now, number: b.number(),
	}
	if covered > 0 {
		next.until = covered.time().AppendFormat(nil, time.RFC3339)
	}
	for _, s := range shown {
		if !s.located {
			next.unlocated++
		}
	}
	for name, z := range b.zones {
		for i, scope := range b.scopes {
			d := &document{zone: z, scope: scope}
			if last := b.last.document(name, i); last != nil {
				d.modified = last.modified
			}
			next.zones[name] = append(next.zones[name], d)
		}
	}
	for _, r := range requests {
		next.zones[r.zone.name][r.scope] = b.document(r, ref, now)
	}
	b.last = next
	return next
}

// document returns the requested document. It is the last one if that has the same pieces and no
// body that was not requested.
func (b *builder) document(r request, ref instant, now time.Time) *document {
	pieces := make([]*piece, len(b.buckets))
	for i, k := range b.buckets {
		pieces[i] = k.part(r.zone, b.scopes[r.scope].view(ref), nil).piece // made by prepare
	}
	d := b.last.document(r.zone.name, r.scope)
	if d == nil || !d.built || !slices.Equal(d.pieces, pieces) || !d.hasOnly(r.forms) {
		d = newDocument(r.zone, b.scopes[r.scope], pieces, d, now)
	}
	for f, e := range variants {
		if r.forms[f][e] {
			d.body(f, e)
		}
	}
	return d
}

// newDocument returns the document that follows old, which may be nil or not built.
func newDocument(z *zone, c scope, pieces []*piece, old *document, now time.Time) *document {
	d := &document{
		zone: z, scope: c, built: true, pieces: pieces, sum: sumOf(pieces, z, c), modified: now.Truncate(time.Second),
		replaced: make(chan struct{}),
	}
	for f, e := range variants {
		d.etags[f][e] = etagOf(d.sum, f, e)
	}
	switch {
	case old == nil:
	case old.sum == d.sum:
		d.modified = old.modified
	case !d.modified.After(old.modified): // built in the same second, or the clock was set back
		d.modified = old.modified.Add(time.Second)
	}
	d.lastModified = []byte(d.modified.UTC().Format(http.TimeFormat))
	return d
}
