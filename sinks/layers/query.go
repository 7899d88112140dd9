package layers

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
)

// query holds the query parameters of a request.
type query struct {
	scope   int
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
	horizon := false
	for name, value := range ctx.QueryArgs().All() {
		var ok bool
		switch string(name) {
		case "horizon":
			repeated := horizon
			if q.scope, horizon = l.scopes[string(value)]; repeated || !horizon {
				return q, invalid("horizon", fmt.Sprintf(
					"horizon must occur once and be one of %v minutes; omit it for the whole layer", l.cfg.Horizons))
			}
			continue
		case "since":
			if q.since, ok = sumFromETag(string(value)); !ok || q.follows {
				return q, invalid("since", "since must occur once and be the ETag or Forecast-Version of an earlier response, such as 5f1c0d9be2a4467a")
			}
			q.follows = true
			continue
		case "tile":
			if q.area, ok = parseTile(string(value)); !ok {
				return q, invalid("tile", "tile must be zoom/x/y, with a zoom of 6 to 14 and x and y below 2 to the power of zoom")
			}
		case "bbox":
			if q.area, ok = parseBox(string(value)); !ok {
				return q, invalid("bbox", "bbox must be minLon,minLat,maxLon,maxLat in degrees, each minimum at most its maximum")
			}
		case "street":
			if q.numbers, ok = parseNumbers(string(value)); !ok {
				return q, invalid("street", fmt.Sprintf("street must be 1 to %d street numbers, separated by commas", maxNumbers))
			}
		default:
			continue
		}
		if q.within != "" {
			return q, invalid(string(name), "tile, bbox and street are mutually exclusive, and each may be used only once")
		}
		q.within = string(name)
	}
	return q, nil
}

func invalid(parameter, description string) *contract.APIError {
	return contract.NewParameterError(contract.InvalidParameter, parameter, description)
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

// made reports whether the response is made for the request, at least in part.
func (q *query) made() bool { return q.follows || q.within != "" }

// Values of Forecast-Content.
var (
	contentChanges = []byte("changes")
	contentWhole   = []byte("whole")
)

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
	if q.within != "street" { // pieces of single streets are compressed for each request
		r.zone.demand(r.scope.whole).last[r.format][r.encoding].note(now)
	}
	if q.within == "" {
		return
	}
	r.part = true
	if r.pieces = r.selected(q); r.content == nil {
		r.etag = etagOf(sumOf(r.pieces, r.zone, r.scope), r.format, r.encoding)
	}
}

// follow sets the pieces to the changes since q.since, and reports whether they are known.
func (r *response) follow(q *query) bool {
	if q.since == r.sum {
		return true
	}
	v, known := r.layer.history.find(r.document, q.since)
	if !known || v.number < r.snapshot.oldest || v.number > r.snapshot.number { // built since r was found
		return false
	}
	changes, ok := r.document.changesSince(r.snapshot, v)
	if ok && q.within != "" {
		if len(changes.streets) > maxFiltered {
			return false
		}
		changes = r.filter(q, changes)
	}
	r.pieces = []*piece{changes}
	return ok
}

// maxFiltered is the maximum number of changes from which those in a part are selected for a
// request. If there are more, clients get the whole part, which is mostly prebuilt.
const maxFiltered = 5_000

// filter returns a piece with those streets of unfiltered that the query selects, or nil if it
// would be empty.
func (r *response) filter(q *query, unfiltered *piece) *piece {
	p := &piece{view: r.scope.view(r.snapshot.ref), zone: r.zone, every: unfiltered.every, own: true}
	for i, s := range unfiltered.streets {
		if !q.selects(s) {
			continue
		}
		if p.streets = append(p.streets, s); i >= len(unfiltered.streets)-unfiltered.bare {
			p.bare++
		}
	}
	c := r.zone.compressors.borrow()
	defer r.zone.compressors.release(c)
	return c.digest(p)
}

// selected returns the pieces of the selected streets. For a bucket that lies completely within the
// area, it is the document's piece, which is already compressed.
func (r *response) selected(q *query) (pieces []*piece) {
	if q.within == "street" {
		var streets []*street
		for _, number := range slices.Compact(slices.Sorted(slices.Values(q.numbers))) {
			streets = append(streets, r.snapshot.entries(number)...)
		}
		return []*piece{r.filter(q, &piece{streets: streets})}
	}
	for i, b := range r.snapshot.buckets {
		switch p := r.document.pieces[i]; {
		case p == nil || !q.area.overlaps(b.bounds):
		case b.located && q.area.contains(b.bounds):
			pieces = append(pieces, p)
		default:
			pieces = append(pieces, r.filter(q, p))
		}
	}
	return pieces
}

const (
	maxWait      = time.Minute // maximum time that a request waits for a change
	drainingWait = time.Second // the same after Drain
)

// wait waits until the document differs from the version in since, for at most the time in the
// Prefer header. It returns immediately if one of them is missing, or if too many requests of the
// client are already waiting. Drain ends the wait. Requests after Drain wait for at most
// drainingWait, so that clients do not repeat them in a tight loop.
func (l *Layer) wait(c *contract.Client, ctx *fasthttp.RequestCtx, q *query) {
	seconds := preferredWait(&ctx.Request.Header)
	if !q.follows || seconds == 0 {
		return
	}
	replaced := l.replacement(c, ctx, q)
	if replaced == nil || !l.waiters.enter(c.Owner, l.cfg.MaxWaiting) {
		return
	}
	defer l.waiters.leave(c.Owner)
	ctx.Response.Header.Set("Preference-Applied", "wait="+strconv.Itoa(seconds))
	limit, draining := time.Duration(seconds)*time.Second, l.draining
	select {
	case <-draining:
		limit, draining = min(limit, drainingWait), nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for replaced != nil {
		select {
		case <-replaced:
			replaced = l.replacement(c, ctx, q)
		case <-timer.C:
			return
		case <-draining:
			return
		}
	}
}

// replacement returns a channel that is closed when the document is replaced, or nil if the version
// in since is not its current one. The channel does not keep the document in memory.
func (l *Layer) replacement(c *contract.Client, ctx *fasthttp.RequestCtx, q *query) <-chan struct{} {
	r, apiErr := l.find(c, &ctx.Request.Header, q, time.Now())
	if apiErr != nil || r.sum != q.since {
		return nil
	}
	return r.replaced
}

// preferredWait returns the seconds of the first wait in Prefer (RFC 7240), at most maxWait; the
// default is 0.
func preferredWait(h *fasthttp.RequestHeader) int {
	for _, rest := range h.PeekAll("Prefer") {
		for len(rest) > 0 {
			var e negotiate.Element
			e, rest = negotiate.Next(rest)
			name, value, _ := bytes.Cut(e.Value, []byte{'='})
			if !bytes.EqualFold(bytes.TrimSpace(name), []byte("wait")) {
				continue
			}
			seconds, err := strconv.Atoi(strings.Trim(string(bytes.TrimSpace(value)), `"`))
			if err != nil {
				return 0
			}
			return max(0, min(seconds, int(maxWait/time.Second)))
		}
	}
	return 0
}
