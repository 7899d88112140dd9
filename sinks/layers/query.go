package layers

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// query holds the query parameters of a request.
type query struct {
	view    int    // index in builder.views
	all     bool   // fields is present
	follows bool   // since is present
	since   uint64 // hash of the content that the client has
	within  string // the parameter that selects streets: tile, bbox or street; empty if there is none
	area    area
	numbers []int32
}

func (l *Layer) parse(ctx *fasthttp.RequestCtx) (q query, apiErr *contract.APIError) {
	if bytes.IndexByte(ctx.RequestURI(), '?') < 0 {
		return q, nil
	}
	for name, value := range ctx.QueryArgs().All() {
		var ok bool
		var rule string
		first := q.within == ""
		switch string(name) {
		case "horizon":
			first = q.view == 0
			q.view, ok = l.views[string(value)]
			rule = l.horizonRule
		case "fields":
			first, q.all = !q.all, true
			ok, rule = string(value) == "all", "fields must be all; omit it for the members that every street has"
		case "since":
			first, q.follows = !q.follows, true
			q.since, ok = sumFromETag(string(value))
			rule = "since must be the ETag or Forecast-Version of an earlier response, such as 5f1c0d9be2a4467a"
		case "tile":
			q.area, ok = parseTile(string(value))
			q.within, rule = "tile", "tile must be zoom/x/y, with a zoom of 6 to 14 and x and y below 2 to the power of zoom"
		case "bbox":
			q.area, ok = parseBox(string(value))
			q.within, rule = "bbox", "bbox must be minLon,minLat,maxLon,maxLat in degrees, each minimum at most its maximum"
		case "street":
			q.numbers, ok = parseNumbers(string(value))
			q.within, rule = "street", "street must be 1 to 100 street numbers, separated by commas"
		default:
			continue
		}
		if !ok || !first {
			rule += "; each parameter may be used only once, and only one of tile, bbox and street"
			return q, contract.NewParameterError(contract.InvalidParameter, string(name), rule)
		}
	}
	if q.all {
		q.view += len(l.views) + 1
	}
	return q, nil
}

// Limits of the parameters tile and street.
const (
	minZoom    = 6
	maxZoom    = 14
	maxNumbers = 100
)

func parseTile(text string) (a area, ok bool) {
	fields := strings.Split(text, "/")
	if len(fields) != 3 {
		return a, false
	}
	var n [3]uint32
	for i, field := range fields {
		v, err := strconv.ParseUint(field, 10, maxZoom)
		if err != nil {
			return a, false
		}
		n[i] = uint32(v)
	}
	if zoom := n[0]; zoom < minZoom || zoom > maxZoom || n[1]>>zoom > 0 || n[2]>>zoom > 0 {
		return a, false
	}
	return tileArea(n[0], n[1], n[2]), true
}

func parseBox(text string) (a area, ok bool) {
	fields := strings.Split(text, ",")
	if len(fields) != 4 || strings.ContainsAny(text, "xX_") { // ParseFloat accepts hexadecimal numbers and 1_0
		return a, false
	}
	var n [4]float64
	for i, field := range fields {
		v, err := strconv.ParseFloat(field, 64)
		if limit := float64(180 - 90*(i%2)); err != nil || !(v >= -limit && v <= limit) { // also rejects NaN
			return a, false
		}
		n[i] = v
	}
	northWest, southEast := placeOf(n[0], n[3]), placeOf(n[2], n[1])
	return area{northWest.x, northWest.y, southEast.x, southEast.y}, n[0] <= n[2] && n[1] <= n[3]
}

func parseNumbers(text string) (numbers []int32, ok bool) {
	fields := strings.Split(text, ",")
	if len(fields) > maxNumbers {
		return nil, false
	}
	for _, field := range fields {
		v, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, int32(v))
	}
	return numbers, true
}

func (q *query) selects(s *street) bool {
	switch q.within {
	case "":
		return true
	case "street":
		return slices.Contains(q.numbers, s.id.street)
	}
	return s.located && q.area.has(s.place)
}

// choose sets the content to send: the document, the streets that the query selects, or only the
// changed ones among them. With since, the ETag is the document's, because the client needs it for
// its next request. It is weak, because another replica may send more streets, or all of them.
func (r *response) choose(q *query, now time.Time) {
	r.etag = r.etags[r.format][r.encoding]
	if q.follows {
		r.etag = append([]byte("W/"), r.etag...)
		if r.content = contentWhole; r.follow(q) {
			r.content, r.part = contentChanges, true
			return
		}
	}
	asked := &r.zone.asked[r.view.kind()][r.format][r.encoding]
	if seconds := now.Unix(); q.within != "street" && asked.Load() != seconds { // most requests only read it
		asked.Store(seconds)
	}
	if q.within == "" {
		return
	}
	r.part = true
	if r.pieces = r.selected(q); r.content == nil {
		r.etag = etagOf(sumOf(r.pieces, r.zone, r.view), r.format, r.encoding)
	}
}

// follow sets the pieces to the changes since q.since, and reports whether they are known.
func (r *response) follow(q *query) bool {
	if q.since == r.sum {
		return true
	}
	v, known := r.snapshot.versions[q.since]
	if !known || v.zone != r.zone.name || v.index != r.index {
		return false
	}
	p := r.changesSince(r.snapshot, v.number)
	if p == nil {
		return false
	}
	if q.within != "" {
		if len(p.streets) > maxFiltered {
			return false
		}
		p = r.filter(q, p.streets, true)
	}
	r.pieces = []*piece{p}
	return true
}

// maxFiltered is the maximum number of changes from which those in a part are selected for a
// request. If there are more, clients get the whole part, which is mostly prebuilt.
const maxFiltered = 5_000

// filter returns a piece with those streets that the query selects.
func (r *response) filter(q *query, streets []*street, every bool) *piece {
	selected := slices.DeleteFunc(slices.Clone(streets), func(s *street) bool { return !q.selects(s) })
	p := newPiece(selected, r.view.from(r.snapshot.ref), r.zone, every)
	p.own = true
	return p
}

// selected returns the pieces of the selected streets. For a cell that lies completely within the
// area, it is the document's piece, which is already compressed.
func (r *response) selected(q *query) (pieces []*piece) {
	if q.within == "street" {
		var streets []*street
		for _, number := range slices.Compact(slices.Sorted(slices.Values(q.numbers))) {
			streets = append(streets, r.snapshot.entries(number)...)
		}
		return []*piece{r.filter(q, streets, false)}
	}
	for i, c := range r.snapshot.cells {
		switch {
		case !q.area.overlaps(c.bounds):
		case c.located && q.area.contains(c.bounds):
			pieces = append(pieces, r.document.pieces[i])
		default:
			pieces = append(pieces, r.filter(q, c.streets, false))
		}
	}
	return pieces
}
