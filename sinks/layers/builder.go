package layers

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// changes holds a feed's updates: the latest forecast of each changed street, or nil if the street
// was removed.
type changes struct {
	replace bool // all other streets are removed
	streets map[key]*street
}

func noChanges() changes { return changes{streets: map[key]*street{}} }

// snapshot is the finished layer: every document that a client can request. It is immutable and
// shares unchanged documents and pieces with its predecessor.
type snapshot struct {
	zones     map[string][]*document // keyed by the name of the time zone; indexed by view, as in builder.views
	cells     []*cell
	numbered  []*street // all streets, ordered by key; also those that ended or were removed recently
	versions  map[uint64]version
	oldest    uint32 // number of a build; changes since earlier ones are not known
	ref       instant
	streets   int     // number of streets shown
	unlocated int     // number of those whose code contains no location
	leftOut   int     // forecasts omitted because of max_streets since the feed last replaced everything
	covered   instant // the end of the last period; 0 if there is no street
	until     []byte  // covered as a header value
	built     time.Time
	bytes     int           // total size of the bodies that were built
	number    uint32        // number of builds, including this one
	replaced  chan struct{} // closed when this is no longer the latest snapshot
	tiles     tiles
}

// document returns a document, or nil if there is no snapshot or if the zone is not in it.
func (s *snapshot) document(zone string, view int) *document {
	if s == nil || s.zones[zone] == nil {
		return nil
	}
	return s.zones[zone][view]
}

// document is the layer in one time zone and view. It is immutable, except that bodies and changes
// are made on request.
type document struct {
	zone         *zone
	index        int       // of the view in builder.views
	plain        int       // of the view without the optional members
	view         view      // relative to the reference time
	modified     time.Time // when this content was built, in whole seconds; later than for the previous content
	pieces       []*piece  // of each cell
	sum          uint64    // hash of the content
	lastModified []byte    // modified as a header value
	etags        [numFormats][numEncodings][]byte
	bodies       [numFormats][numEncodings]atomic.Pointer[body]
	filling      sync.Mutex // held while a body is made

	following sync.Mutex        // guards the fields below
	changes   map[uint32]*piece // since other builds, by their numbers; nil means that clients get the whole layer
	followed  int               // number of streets in changes
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
		if !d.pieces[i].empty {
			d.pieces[i].form(f, e)
		}
	})
	b := join(d.pieces, f, e)
	if b.size <= maxJoinedSize { // it is sent in one write
		b.segments = [][]byte{slices.Concat(b.segments...)}
	}
	d.bodies[f][e].Store(b)
	return b
}

const maxJoinedSize = 256 << 10

// size returns the size of the pieces and of the changes that were made in a format and encoding.
func (d *document) size(f format, e encoding) (total int) {
	d.following.Lock()
	defer d.following.Unlock()
	for _, p := range slices.AppendSeq(slices.Clone(d.pieces), maps.Values(d.changes)) {
		if p == nil {
			continue
		}
		if made := p.forms[f][e].Load(); made != nil {
			total += len(made.bytes)
		}
	}
	return total
}

// zone is a time zone in which the layer is built.
type zone struct {
	name  string
	until time.Time // when it is dropped; zero while a client uses it
	// Unix time of the last request, by view.kind.
	asked map[view]*[numFormats][numEncodings]atomic.Int64
}

// builder makes snapshots, each from its predecessor. It is not safe for concurrent use.
type builder struct {
	cfg      Config
	views    []view           // the whole layer, then the horizons, then the same with the optional members; relative to the reference time
	zones    map[string]*zone // time zones to build
	ordered  []*street        // those of last.numbered that have periods, in the order of the layer
	extended bool             // a street has an optional member; otherwise, the views with them show the same as the others
	last     *snapshot        // the latest snapshot; before the first build, an empty one
}

func newBuilder(cfg Config) *builder {
	b := &builder{cfg: cfg, views: []view{{whole: true}}, zones: map[string]*zone{}, last: &snapshot{versions: map[uint64]version{}}}
	for _, minutes := range cfg.Horizons {
		b.views = append(b.views, horizon(minutes))
	}
	for _, v := range b.views {
		v.all = true
		b.views = append(b.views, v)
	}
	return b
}

// zoneGrace is how long a time zone is still built after the last API key that uses it is replaced.
// The old keys remain valid until everything is ready for the new ones.
const zoneGrace = time.Minute

// setZones sets the time zones. The horizons of a new one are built in advance as gzipped protobuf,
// which map clients request, so that the first client does not wait.
func (b *builder) setZones(names []string, now time.Time) {
	for name, z := range b.zones {
		if z.until.IsZero() && !slices.Contains(names, name) {
			z.until = now.Add(zoneGrace)
		}
	}
	for _, name := range names {
		if b.zones[name] == nil {
			b.zones[name] = &zone{name: name, asked: map[view]*[numFormats][numEncodings]atomic.Int64{}}
			for _, v := range b.views {
				b.zones[name].asked[v.kind()] = &[numFormats][numEncodings]atomic.Int64{}
			}
			if first := b.zones[name].asked[view{}]; first != nil { // there are horizons
				first[protobuf][gzipped].Store(now.Unix())
			}
		}
		b.zones[name].until = time.Time{}
	}
}

// update applies the changes and builds the layer for a reference time.
func (b *builder) update(c changes, ref instant, now time.Time) *snapshot {
	next := &snapshot{
		numbered: b.last.numbered, oldest: b.last.oldest, leftOut: b.last.leftOut,
		number: b.last.number + 1, ref: ref, built: now, replaced: make(chan struct{}),
	}
	if c.replace || len(c.streets) > 0 {
		b.apply(next, c)
	}
	for _, s := range next.numbered {
		if ref >= s.next || ref < b.last.ref {
			b.mark(s, s, ref)
		}
	}
	for name, z := range b.zones {
		if !z.until.IsZero() && z.until.Before(now) {
			delete(b.zones, name)
		}
	}
	b.build(next)
	b.last = next
	return next
}

// keepEnded is how long streets are kept after they ended or were removed: for clients that follow
// the layer, and in case the clock is set back.
const keepEnded = instant(time.Hour / time.Microsecond)

// apply sets the streets of next after the changes. Streets over the maximum are dropped until the
// feed sends them again, so leftOut counts them until the feed replaces everything.
func (b *builder) apply(next *snapshot, c changes) {
	ref := next.ref
	if c.replace {
		next.leftOut = 0
	}
	before, changed := next.numbered, slices.SortedFunc(maps.Keys(c.streets), key.compare)
	next.numbered = make([]*street, 0, len(before)+len(changed))
	live := 0
	for len(before) > 0 || len(changed) > 0 {
		var old, s *street
		if len(changed) == 0 || len(before) > 0 && before[0].id.compare(changed[0]) <= 0 {
			old, before = before[0], before[1:]
		}
		switch {
		case len(changed) > 0 && (old == nil || old.id == changed[0]):
			s, changed = c.streets[changed[0]], changed[1:]
		case !c.replace:
			s = old
		}
		if s != nil && s.live(ref) && live == b.cfg.MaxStreets {
			next.leftOut++
			s = nil
		}
		if s = successor(old, s, ref); s == nil {
			continue
		}
		if old != nil && s.code != old.code {
			next.oldest = next.number // the street may have left the part of the map that a client follows
		}
		if s != old {
			b.mark(old, s, ref)
		}
		if s.live(ref) {
			live++
		}
		next.numbered = append(next.numbered, s)
	}
	if len(next.numbered)-live > b.cfg.MaxStreets { // bounds memory if a feed replaces its streets all the time
		next.numbered = slices.DeleteFunc(next.numbered, func(s *street) bool { return !s.live(ref) })
		next.oldest = next.number
	}
	b.ordered = slices.DeleteFunc(slices.Clone(next.numbered), func(s *street) bool { return len(s.periods) == 0 })
	slices.SortFunc(b.ordered, byPosition)
	b.extended = slices.ContainsFunc(b.ordered, (*street).extended)
}

// successor returns what replaces old if the feed's forecast is s. Either may be nil. It returns
// the old *street if the forecast is the same, so that nothing is rebuilt.
func successor(old, s *street, ref instant) *street {
	switch {
	case s != nil && s.until > ref-keepEnded && old != nil && s.equal(old):
		return old
	case s != nil && s.until > ref-keepEnded:
		return s
	case old != nil && old.until > ref-keepEnded:
		return old.removed(ref)
	}
	return nil
}

// mark sets what the builder knows about a street: when it changes next, and which views show
// something else than in the last build. There, the street was old, or nil if it is new.
func (b *builder) mark(old, s *street, ref instant) {
	var before, after []int
	number := b.last.number + 1
	s.next = never
	for i, v := range b.views[:len(b.views)/2] {
		if old != nil {
			before, _, _ = v.from(b.last.ref).pick(before, old)
			s.changed[i].Store(old.changed[i].Load())
			s.shown[i].Store(old.shown[i].Load())
		}
		var until instant
		after, _, until = v.from(ref).pick(after, s)
		s.next = min(s.next, until-v.at)
		other := old == nil || old.length != s.length || old.freeFlow != s.freeFlow
		if other && len(after) > 0 || !slices.EqualFunc(before, after, func(x, y int) bool { return old.periods[x].equal(s.periods[y]) }) {
			s.changed[i].Store(number)
		}
		if len(before) == 0 && len(after) > 0 {
			s.shown[i].Store(number)
		}
	}
}

// build completes next with the cells and documents for its streets and reference time.
func (b *builder) build(next *snapshot) {
	shown := make([]*street, 0, len(b.ordered))
	for _, s := range b.ordered { // others must not affect the cells, because another replica may never have received them
		if s.live(next.ref) {
			if shown, next.covered = append(shown, s), max(next.covered, s.until); !s.located {
				next.unlocated++
			}
		}
	}
	if next.streets = len(shown); next.covered > 0 {
		next.until = next.covered.time().AppendFormat(nil, time.RFC3339)
	}
	views := b.views
	if !b.extended {
		views = views[:len(views)/2]
	}
	next.cells = cut(shown, maxCellStreets, b.last.cells)
	parallel(len(next.cells), func(i int) {
		c := next.cells[i]
		c.pieces = slices.DeleteFunc(c.pieces, func(p *piece) bool { return p.until <= next.ref || b.zones[p.zone.name] != p.zone })
		for _, z := range b.zones {
			for _, v := range views {
				if v := v.from(next.ref); c.piece(z, v) == nil {
					c.pieces = append(c.pieces, newPiece(c.streets, v, z, false))
					piecesBuilt.Inc()
				} else {
					piecesReused.Inc()
				}
			}
		}
	})
	next.versions = maps.Clone(b.last.versions)
	maps.DeleteFunc(next.versions, func(_ uint64, v version) bool { return next.built.Sub(v.built) > keepVersions })
	next.zones = make(map[string][]*document, len(b.zones))
	for name, z := range b.zones {
		for i := range views {
			d := b.document(next, z, i)
			next.zones[name] = append(next.zones[name], d)
			next.versions[d.sum] = version{name, i, next.number, next.built}
		}
		if !b.extended {
			next.zones[name] = slices.Repeat(next.zones[name], 2)
		}
	}
}

// document returns a document with the bodies that clients have requested recently, and drops other
// forms. It is the last one if that has the same pieces and no other bodies.
func (b *builder) document(next *snapshot, z *zone, index int) *document {
	v, last := b.views[index], b.last.document(z.name, index)
	pieces := make([]*piece, len(next.cells))
	for i, c := range next.cells {
		pieces[i] = c.piece(z, v.from(next.ref))
	}
	reuse := last != nil && slices.Equal(last.pieces, pieces)
	var wanted [numFormats][numEncodings]bool
	for f, e := range variants {
		if wanted[f][e] = next.built.Unix()-z.asked[v.kind()][f][e].Load() <= int64(b.cfg.KeepForms/time.Second); !wanted[f][e] {
			reuse = reuse && last.bodies[f][e].Load() == nil
			for _, p := range pieces {
				p.forms[f][e].Store(nil)
			}
		}
	}
	d := last
	if !reuse {
		d = &document{zone: z, index: index, view: v, pieces: pieces, sum: sumOf(pieces, z, v), changes: map[uint32]*piece{}}
		d.plain = index % (len(b.views) / 2)
		d.modified = next.built.Truncate(time.Second)
		switch {
		case last == nil:
		case last.sum == d.sum:
			d.modified = last.modified
		case !d.modified.After(last.modified): // built in the same second, or the clock was set back
			d.modified = last.modified.Add(time.Second)
		}
		d.lastModified = []byte(d.modified.UTC().Format(http.TimeFormat))
		for f, e := range variants {
			d.etags[f][e] = etagOf(d.sum, f, e)
		}
	}
	for f, e := range variants {
		if wanted[f][e] {
			next.bytes += d.body(f, e).size
		}
	}
	return d
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
