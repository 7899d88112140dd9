package layers

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/encoding/protowire"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// TilePath is the path of the layer's vector tiles below the base path (contract 2.1).
const TilePath = Path + "/{z}/{x}/{y}.mvt"

// Tiles serves the layer as Mapbox vector tiles, version 2.1 of the specification. Tiles are made
// when they are first requested, and kept until the next build, which each minute has.
type Tiles struct{ *Layer }

const (
	tileType   = "application/vnd.mapbox-vector-tile"
	tileLayer  = "streets"
	tileExtent = 4096     // coordinates of a tile
	tileBuffer = 128      // around it: lines that end at its edge would show a seam
	maxTiles   = 64 << 20 // bytes kept of the tiles of a snapshot
	tileMemory = 512      // bytes of a tile besides its content
	tileRule   = "a tile must be zoom/x/y.mvt, with a zoom of 6 to 14 and x and y below 2 to the power of zoom"
)

// tileKey identifies a tile of a snapshot.
type tileKey struct {
	zoom, x, y uint32
	minutes    int
}

// tile is a finished tile.
type tile struct {
	made    sync.Once
	etag    string
	body    []byte
	gzipped []byte
}

// tiles holds the tiles of a snapshot that were requested.
type tiles struct {
	mu    sync.Mutex
	byKey map[tileKey]*tile
	bytes int
}

// get returns a tile, which make fills if it is new. Requests for the same tile wait for one
// another.
func (t *tiles) get(k tileKey, fill func(*tile)) *tile {
	t.mu.Lock()
	found := t.byKey[k]
	if found == nil {
		if t.byKey == nil || t.bytes > maxTiles {
			t.byKey, t.bytes = map[tileKey]*tile{}, 0
		}
		found = &tile{}
		t.byKey[k] = found
	}
	t.mu.Unlock()
	found.made.Do(func() {
		fill(found)
		t.mu.Lock()
		t.bytes += tileMemory + cap(found.body) + cap(found.gzipped)
		t.mu.Unlock()
	})
	return found
}

// Handle serves a tile for GET and HEAD.
func (t Tiles) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	k, apiErr := t.tileKey(ctx)
	if apiErr != nil {
		return 0, apiErr
	}
	t.turns.Take(c.Owner) // its queue is never full, because connections are limited
	defer t.turns.Release(c.Owner)
	now := time.Now()
	s := t.current.Load()
	switch {
	case s == nil:
		return 0, noLayer
	case t.cfg.Stale == staleRefuse && t.staleReasons(s, now) != nil:
		return 0, staleLayer
	}
	made := s.tiles.get(k, func(made *tile) { s.fill(k, made) })
	h := &ctx.Response.Header
	h.SetCanonical(headerCacheControl, private)
	h.Set(fasthttp.HeaderVary, "Authorization, Accept-Encoding")
	if s.until != nil {
		h.SetCanonical(headerCoveredUntil, s.until)
	}
	h.SetCanonical(headerForecastAge, strconv.AppendInt(nil, int64(t.age(now)/time.Second), 10))
	etag, body := `"`+made.etag+`"`, made.body
	if len(body) > 0 && chooseEncoding(&ctx.Request.Header) == gzipped {
		h.SetCanonical(headerContentCoding, encodingNames[gzipped])
		etag, body = `"`+made.etag+`-g"`, made.gzipped
	}
	negotiate.Serve(ctx, etag, tileType, func() []byte { return body })
	return 0, nil
}

// tileKey parses the path and the horizon.
func (t Tiles) tileKey(ctx *fasthttp.RequestCtx) (k tileKey, apiErr *contract.APIError) {
	path, _, _ := bytes.Cut(ctx.RequestURI(), []byte{'?'}) // not decoded, as the route compares it
	path, _ = bytes.CutSuffix(path, []byte(".mvt"))
	segments := bytes.Split(path, []byte{'/'})
	if len(segments) < 3 {
		return k, contract.NewParameterError(contract.InvalidParameter, "tile", tileRule)
	}
	var n [3]uint64
	for i, segment := range segments[len(segments)-3:] {
		v, err := strconv.ParseUint(string(segment), 10, maxZoom)
		if err != nil {
			return k, contract.NewParameterError(contract.InvalidParameter, "tile", tileRule)
		}
		n[i] = v
	}
	k = tileKey{zoom: uint32(n[0]), x: uint32(n[1]), y: uint32(n[2])}
	if k.zoom < minZoom || k.zoom > maxZoom || k.x>>k.zoom > 0 || k.y>>k.zoom > 0 {
		return k, contract.NewParameterError(contract.InvalidParameter, "tile", tileRule)
	}
	if given := ctx.QueryArgs().PeekMulti("horizon"); len(given) > 0 {
		if len(given) > 1 || t.views[string(given[0])] == 0 {
			return k, contract.NewParameterError(contract.InvalidParameter, "horizon", t.horizonRule)
		}
		k.minutes, _ = strconv.Atoi(string(given[0])) // a key of views
	}
	return k, nil
}

// fill makes a tile.
func (s *snapshot) fill(k tileKey, made *tile) {
	e := newTileEncoder()
	shift := 32 - k.zoom
	units := float64(uint64(1)<<shift) / tileExtent // of a place, in a unit of the tile
	west, north := int64(k.x)<<shift, int64(k.y)<<shift
	margin := int64(tileBuffer * units)
	size := int64(1) << shift
	bound := orb.Bound{Min: orb.Point{-tileBuffer, -tileBuffer}, Max: orb.Point{tileExtent + tileBuffer, tileExtent + tileBuffer}}
	v := horizon(k.minutes).from(s.ref)
	var picked []int
	var line orb.LineString
	for _, c := range s.cells {
		for _, street := range c.streets {
			if len(street.line) < 2 || !street.crosses(west-margin, north-margin, west+size+margin, north+size+margin) {
				continue
			}
			if picked, _, _ = v.pick(picked, street); len(picked) == 0 {
				continue
			}
			line = line[:0]
			inside := true
			for _, p := range street.line {
				point := orb.Point{float64(int64(p.x)-west) / units, float64(int64(p.y)-north) / units}
				inside = inside && bound.Contains(point)
				line = append(line, point)
			}
			if inside {
				e.street(street, &street.periods[picked[0]], line)
			} else {
				e.street(street, &street.periods[picked[0]], clip.LineString(bound, line)...)
			}
		}
	}
	made.body = e.bytes()
	made.etag = fmt.Sprintf("%016x", xxhash.Sum64(made.body))
	if len(made.body) == 0 {
		return // it is served without compression
	}
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestSpeed) // a valid level
	_, _ = w.Write(made.body)                       // writing to memory cannot fail
	_ = w.Close()
	made.gzipped = z.Bytes()
}

// crosses reports whether the rectangle around the line overlaps another one.
func (s *street) crosses(west, north, east, south int64) bool {
	box := noArea
	for _, p := range s.line {
		box = box.extend(p)
	}
	return int64(box.west) <= east && west <= int64(box.east) && int64(box.north) <= south && north <= int64(box.south)
}

// classShares are the lower bounds of the speed classes 1 to 4, as shares of the speed of free
// traffic. The map page has the same classes.
var classShares = [...]float64{0.25, 0.5, 0.75, 0.9}

// speedClass returns 0 for a jam to 4 for free traffic. ok is false if the speed of free traffic is
// unknown.
func (s *street) speedClass(p *period) (class int64, ok bool) {
	if p.closed {
		return 0, true
	}
	for _, share := range classShares {
		if p.speed >= share*s.freeFlow {
			class++
		}
	}
	return class, s.freeFlow > 0
}

// The properties of a street in a tile, by their index in tileKeys.
const (
	keyStreet = iota
	keyFromnode
	keySpeed
	keyLow
	keyHigh
	keyClass
	keyClosed
)

var tileKeys = []string{"street", "fromnode", "speed", "low", "high", "class", "closed"}

// tileEncoder encodes a tile with one layer. The numbers are fields of vector_tile.proto.
type tileEncoder struct {
	features    []byte
	integers    map[int64]uint64 // indexes of values
	numbers     map[float64]uint64
	booleans    map[bool]uint64
	values      []byte
	count       uint64 // of values
	feature     []byte
	tags, shape []byte // of the feature
}

func newTileEncoder() *tileEncoder {
	return &tileEncoder{integers: map[int64]uint64{}, numbers: map[float64]uint64{}, booleans: map[bool]uint64{}}
}

// street adds a street that shows a period, with the coordinates of its lines in the tile.
func (e *tileEncoder) street(s *street, p *period, lines ...orb.LineString) {
	e.tags, e.shape = e.tags[:0], e.shape[:0]
	var at [2]int64
	for _, line := range lines {
		for i, to := range line {
			switch i {
			case 0:
				e.shape = protowire.AppendVarint(e.shape, 1|1<<3) // MoveTo one point
			case 1:
				e.shape = protowire.AppendVarint(e.shape, 2|uint64(len(line)-1)<<3) // LineTo the others
			}
			for axis := range at {
				v := int64(math.Round(to[axis]))
				e.shape = protowire.AppendVarint(e.shape, protowire.EncodeZigZag(v-at[axis]))
				at[axis] = v
			}
		}
	}
	if len(e.shape) == 0 {
		return
	}
	e.integer(keyStreet, int64(s.id.street))
	e.integer(keyFromnode, int64(s.id.fromnode))
	if p.speedValid {
		e.number(keySpeed, p.speed)
	}
	if class, ok := s.speedClass(p); ok && (p.speedValid || p.closed) {
		e.integer(keyClass, class)
	}
	e.number(keyLow, p.low)
	e.number(keyHigh, p.high)
	if p.closedKnown {
		value(e, e.booleans, keyClosed, p.closed, func(b []byte) []byte {
			return protowire.AppendVarint(protowire.AppendTag(b, 7, protowire.VarintType), protowire.EncodeBool(p.closed))
		})
	}
	e.feature = protowire.AppendBytes(protowire.AppendTag(e.feature[:0], 2, protowire.BytesType), e.tags)
	e.feature = protowire.AppendVarint(protowire.AppendTag(e.feature, 3, protowire.VarintType), 2) // LINESTRING
	e.feature = protowire.AppendBytes(protowire.AppendTag(e.feature, 4, protowire.BytesType), e.shape)
	e.features = protowire.AppendBytes(protowire.AppendTag(e.features, 2, protowire.BytesType), e.feature)
}

func (e *tileEncoder) integer(key uint64, v int64) {
	value(e, e.integers, key, v, func(b []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), protowire.EncodeZigZag(v))
	})
}

// number adds a number unless it is NaN, which means unknown.
func (e *tileEncoder) number(key uint64, v float64) {
	if math.IsNaN(v) {
		return
	}
	value(e, e.numbers, key, v, func(b []byte) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(b, 3, protowire.Fixed64Type), math.Float64bits(v))
	})
}

// value adds a property to the feature, and its value to the layer if it is new.
func value[V comparable](e *tileEncoder, known map[V]uint64, key uint64, v V, encode func(b []byte) []byte) {
	i, ok := known[v]
	if !ok {
		i = e.count
		known[v] = i
		e.count++
		var scratch [16]byte
		e.values = protowire.AppendBytes(protowire.AppendTag(e.values, 4, protowire.BytesType), encode(scratch[:0]))
	}
	e.tags = protowire.AppendVarint(protowire.AppendVarint(e.tags, key), i)
}

// bytes returns the tile; it is empty if it has no feature.
func (e *tileEncoder) bytes() []byte {
	if len(e.features) == 0 {
		return nil
	}
	layer := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), tileLayer)
	layer = append(layer, e.features...)
	for _, key := range tileKeys {
		layer = protowire.AppendString(protowire.AppendTag(layer, 3, protowire.BytesType), key)
	}
	layer = append(layer, e.values...)
	layer = protowire.AppendVarint(protowire.AppendTag(layer, 5, protowire.VarintType), tileExtent)
	layer = protowire.AppendVarint(protowire.AppendTag(layer, 15, protowire.VarintType), 2) // version
	return protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), layer)
}
