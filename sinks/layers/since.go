package layers

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// keepVersions is how long the parameter since accepts a version after its last build. It is less
// than keepEnded, so that the snapshot still has all streets that the version showed.
const keepVersions = 55 * time.Minute

// version describes the last build that contains a document with a certain content.
type version struct {
	zone   string
	index  int       // of the view
	number uint32    // number of the build
	built  time.Time // when the build was made
}

// changesSince returns a piece with the streets of which the document shows something else than in
// the build with the number, and those that it showed only then. It omits the codes of streets that
// clients with the version have. It returns nil if such clients get the whole layer. Changes since
// several versions are kept for clients that follow the document; together, they have at most as
// many streets as the layer. Further ones are made for a single request.
func (d *document) changesSince(s *snapshot, number uint32) (p *piece) {
	if number < s.oldest {
		return nil
	}
	d.following.Lock()
	defer d.following.Unlock()
	if p, known := d.changes[number]; known {
		return p
	}
	var streets []*street
	var picked []int
	v, limit := d.view.from(s.ref), max(s.streets, 100)
	for _, st := range s.numbered { // they compress best in this order
		if st.changed[d.plain].Load() <= number {
			continue
		}
		if picked, _, _ = v.pick(picked, st); len(picked) == 0 || st.shown[d.plain].Load() <= number {
			st = st.withoutCode()
		}
		streets = append(streets, st)
	}
	if n := len(streets); n <= limit/2 {
		if p = newPiece(streets, v, d.zone, true); d.followed+n > limit {
			p.own = true
			return p
		}
		d.followed += n
	}
	d.changes[number] = p
	return p
}

// entries returns all streets with the given street number, which differ in fromnode.
func (s *snapshot) entries(number int32) []*street {
	from, _ := slices.BinarySearchFunc(s.numbered, key{number, math.MinInt32}, func(s *street, k key) int { return s.id.compare(k) })
	to := from
	for to < len(s.numbered) && s.numbered[to].id.street == number {
		to++
	}
	return s.numbered[from:to]
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
	if replaced == nil || !l.addWaiting(c.Owner, 1) {
		return
	}
	defer l.addWaiting(c.Owner, -1)
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

// addWaiting adds n to the number of waiting requests of the owner, and reports whether it is
// allowed.
func (l *Layer) addWaiting(owner string, n int) bool {
	l.clients.Lock()
	defer l.clients.Unlock()
	if n > 0 && l.waiting[owner] >= l.cfg.MaxWaiting {
		return false
	}
	if l.waiting[owner] += n; l.waiting[owner] == 0 {
		delete(l.waiting, owner)
	}
	return true
}

// replacement returns a channel that is closed when the layer is replaced, or nil if the version in
// since is not the current one. The channel does not keep the layer in memory.
func (l *Layer) replacement(c *contract.Client, ctx *fasthttp.RequestCtx, q *query) <-chan struct{} {
	r, apiErr := l.find(c, &ctx.Request.Header, q, time.Now())
	if apiErr != nil || r.sum != q.since {
		return nil
	}
	return r.snapshot.replaced
}

// preferredWait returns the seconds of the first wait in Prefer (RFC 7240), at most maxWait, or 0.
func preferredWait(h *fasthttp.RequestHeader) int {
	value, _ := negotiate.Preference(h, "wait")
	seconds, _ := strconv.Atoi(strings.Trim(value, `"`)) // 0 if it is not a number
	return max(0, min(seconds, int(maxWait/time.Second)))
}
