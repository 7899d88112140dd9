package api

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

// Endpoint handles requests to a route. Its methods are called concurrently by the goroutines
// of many connections. The client is nil if the route's Open lists the method.
type Endpoint interface {
	// Admit is called before the body is read, after path, method, key, right and rate limit have
	// been checked. It returns an error if the header alone rules the request out. Handle may not
	// follow, because the client may disconnect first. h is only valid during the call and must not
	// be changed.
	Admit(c *contract.Client, h *fasthttp.RequestHeader) *contract.APIError

	// Handle writes the response to ctx, or returns an error, which replaces the response: a
	// *contract.APIError is sent as such, batch.ErrNoResponse closes the connection without a
	// response, and any other error is a 500. items is always charged to the key's item rate.
	//
	// The Trace-Id header of the response is already set. Handle should read the body until io.EOF;
	// otherwise the connection is closed after the response. Handle calls ctx.SetConnectionClose if
	// what follows the body may be the rest of it, and sets the read deadline of ctx.Conn().
	Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error)
}

// Route is one path of the API.
type Route struct {
	Path     string   // below the base path, like /mlf/v1/forecast/realtime; see match
	Methods  []string // HEAD must be listed explicitly
	Right    contract.Right
	Endpoint Endpoint

	Open []string // the methods that need no key, for public documents such as a schema

	Basic    bool // also accept HTTP Basic with the key as password (contract 3)
	QueryKey bool // also accept ?apiKey= without an Authorization header (contract 2)
}

// route is a Route with precomputed values.
type route struct {
	Route
	path       string   // with the base path
	allow      string   // the Allow header of a 405
	challenges []string // a WWW-Authenticate line of a 401 for each scheme, because many clients read only the first in a line
	metrics    *routeMetrics
}

type routes struct {
	fixed     map[string]*route // by path
	templates []*route          // those whose paths have parameters
}

func newRoutes(base string, list []Route) (routes, error) {
	m := routes{fixed: make(map[string]*route, len(list))}
	for _, r := range list {
		path := base + r.Path
		if m.fixed[path] != nil {
			return routes{}, fmt.Errorf("cannot mount the route %s twice: list all methods of a path in one route", path)
		}
		challenges := []string{"apiKey"}
		if r.Basic {
			challenges = append(challenges, `Basic realm="trafficd"`)
		}
		m.fixed[path] = &route{
			Route: r, path: path, allow: strings.Join(r.Methods, ", "), challenges: challenges, metrics: metricsOf(r.Path),
		}
		if strings.Contains(path, "{") {
			m.templates = append(m.templates, m.fixed[path])
		}
	}
	return m, nil
}

func (m routes) find(target []byte) *route {
	path := pathOf(target)
	if r := m.fixed[string(path)]; r != nil {
		return r
	}
	for _, r := range m.templates {
		if match(r.path, path) {
			return r
		}
	}
	return nil
}

// match reports whether a path has the form of a template, such as /tiles/{z}/{x}.mvt. A parameter
// matches one or more bytes other than a slash, up to the end of its segment or a fixed ending.
// All other bytes are compared. Endpoints take the values from the path themselves.
func match(template string, path []byte) bool {
	for {
		wanted, wantedRest, more := strings.Cut(template, "/")
		segment, rest, moreSegments := bytes.Cut(path, []byte{'/'})
		if start, parameter, ok := strings.Cut(wanted, "{"); ok {
			_, end, _ := strings.Cut(parameter, "}")
			if len(segment) <= len(start)+len(end) || !bytes.HasPrefix(segment, []byte(start)) || !bytes.HasSuffix(segment, []byte(end)) {
				return false
			}
		} else if string(segment) != wanted {
			return false
		}
		if !more || !moreSegments {
			return more == moreSegments
		}
		template, path = wantedRest, rest
	}
}

func (r *route) accepts(method []byte) bool { return slices.Contains(r.Methods, string(method)) }

func (r *route) open(method []byte) bool { return slices.Contains(r.Open, string(method)) }

// routeMetrics counts the requests to a route.
type routeMetrics struct {
	route   string
	byCode  [contract.CodeCount]atomic.Pointer[metrics.Counter] // nil before the first request with this code
	seconds metrics.Observer
}

func metricsOf(route string) *routeMetrics {
	return &routeMetrics{route: route, seconds: requestSeconds.WithLabelValues(route)}
}

func (m *routeMetrics) count(code contract.Code) {
	c := m.byCode[code].Load()
	if c == nil {
		created := requestsTotal.WithLabelValues(m.route, code.String())
		c = &created
		m.byCode[code].Store(c)
	}
	(*c).Inc()
}

// pathOf returns a request target without its query, and without the origin of an absolute form.
func pathOf(target []byte) []byte {
	target, _, _ = bytes.Cut(target, []byte{'?'})
	if len(target) > 0 && target[0] != '/' {
		if _, rest, ok := bytes.Cut(target, []byte("://")); ok {
			if slash := bytes.IndexByte(rest, '/'); slash >= 0 {
				return rest[slash:]
			}
			return []byte{'/'}
		}
	}
	return target
}
