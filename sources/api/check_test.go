package api

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

func contextWithin(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// TestRejectedBeforeBody covers each check before the body with each way to announce a body. No
// byte of it is sent, and the response arrives without waiting for one.
func TestRejectedBeforeBody(t *testing.T) {
	p := &probe{before: func(*contract.Client, *fasthttp.RequestHeader) *contract.APIError {
		return &contract.APIError{Code: contract.GzipRequired, Description: "no", Parameter: "Content-Encoding"}
	}}
	s := start(t, p, nil)
	f := func(line, headers string, status int, code contract.Code, header, value string) {
		t.Helper()
		for _, announced := range []string{
			"Content-Length: 5\r\n", "Content-Length: 16777216\r\n", "Transfer-Encoding: chunked\r\n",
			"Content-Length: 5\r\nExpect: 100-continue\r\n", "Transfer-Encoding: chunked\r\nExpect: 100-Continue\r\n",
		} {
			c := dial(t, s).send(line + "Host: h\r\n" + headers + announced + "\r\n")
			resp := c.response()
			requireError(t, resp, status, code)
			require.True(t, resp.Close, "Connection: close")
			if header != "" {
				require.Equal(t, value, resp.Header.Get(header))
			}
			c.ended()
		}
	}
	f("POST /nothing HTTP/1.1\r\n", "", 404, contract.NotFound, "", "")
	f("POST /in HTTP/1.1\r\n", "", 404, contract.NotFound, "", "") // outside the base path
	f("GET /base/in HTTP/1.1\r\n", "", 405, contract.MethodNotAllowed, "Allow", "POST")
	f("POST /base/map HTTP/1.1\r\n", "", 405, contract.MethodNotAllowed, "Allow", "GET, HEAD")
	f(post, "", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: apiKey\r\n", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: apiKey \r\n", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: good-key\r\n", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: Bearer good-key\r\n", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: apiKey bad-key\r\n", 401, contract.Unauthenticated, "Www-Authenticate", "apiKey")
	f(post, "Authorization: apiKey good-key\r\nAuthorization: apiKey good-key\r\n", 401, contract.Unauthenticated, "", "")
	f(post, "Authorization: Basic eDpnb29kLWtleQ==\r\n", 401, contract.Unauthenticated, "", "") // not on this route
	f("POST /base/in?apiKey=good-key HTTP/1.1\r\n", "", 401, contract.Unauthenticated, "", "")  // not on this route
	f(post, "Authorization: apiKey view-key\r\n", 403, contract.Forbidden, "", "")
	require.Zero(t, p.asked.Load(), "Admit is called last")
	f(post, "Authorization: apiKey good-key\r\n", 415, contract.GzipRequired, "Accept-Encoding", "gzip")
	f("POST http://h/base/in?x=1 HTTP/1.1\r\n", "Authorization: APIKEY   good-key \r\n", 415, contract.GzipRequired, "", "")
	require.NotZero(t, p.asked.Load())
	require.Zero(t, p.served.Load())
}

func TestRates(t *testing.T) {
	s := start(t, &probe{}, nil)
	items := strings.Repeat("x", 5000) // charged as items: minutes at 10 per second
	f := func(key, limit string) {
		t.Helper()
		request := post + "Host: h\r\nAuthorization: apiKey " + key + "\r\nContent-Length: 5000\r\n\r\n" + items
		require.Equal(t, 200, dial(t, s).send(request).response().StatusCode, limit)
		c := dial(t, s).send(request)
		resp := c.response()
		require.Equal(t, "rate limit exceeded: this key may send "+limit, requireError(t, resp, 429, contract.RateLimited).Description)
		require.Regexp(t, "^[1-9][0-9]*$", resp.Header.Get("Retry-After"))
		c.ended()
	}
	f("slow-key", "0.01 requests per second")
	f("items-key", "10 items per second")
}

func TestCredentials(t *testing.T) {
	s := start(t, &probe{}, nil)
	f := func(target, headers string, want int) {
		t.Helper()
		c := dial(t, s).send("GET " + target + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n")
		require.Equal(t, want, c.responseTo("GET").StatusCode)
	}
	f("/base/map", "Authorization: apikey view-key\r\n", 200)
	f("/base/map", "Authorization: ApiKey view-key\r\n", 200)
	f("/base/map?apiKey=view-key", "", 200)
	f("/base/map?horizon=30&apiKey=view%2Dkey", "", 200)
	f("/base/map?apiKey=view-key", "Authorization: apiKey wrong\r\n", 401) // the header takes precedence
	f("/base/map?apiKey=", "", 401)
	f("/base/map?apiKey=view-key&apiKey=view-key", "", 401)
	f("/base/map", "Authorization: Basic dXNlcjp2aWV3LWtleQ==\r\n", 200) // user:view-key
	f("/base/map", "Authorization: basic dXNlcjp2aWV3LWtleQ==\r\n", 200)
	f("/base/map", "Authorization: Basic dmlldy1rZXk=\r\n", 401) // no colon
	f("/base/map", "Authorization: Basic !\r\n", 401)
	f("/base/map", "Authorization: apiKey view-key\r\n", 401)            // the Kelvin sign
	f("/base/map", "Authorization: Baſic dXNlcjp2aWV3LWtleQ==\r\n", 401) // a long s

	resp := dial(t, s).send("GET /base/map HTTP/1.1\r\nHost: h\r\n\r\n").responseTo("GET")
	require.Equal(t, []string{"apiKey", `Basic realm="trafficd"`}, resp.Header.Values("Www-Authenticate"), "a line for each scheme")
	require.False(t, resp.Close, "a request without a body does not close its connection")
}

// TestVersions checks that only HTTP/1.0 and HTTP/1.1 are supported.
func TestVersions(t *testing.T) {
	s := start(t, &probe{}, nil)
	f := func(version string) {
		t.Helper()
		c := dial(t, s).send("POST /base/in " + version + "\r\n" + good + "Content-Length: 5\r\n\r\nabcde")
		requireError(t, c.response(), 505, contract.InvalidParameter)
		c.ended()
	}
	f("HTTP/2.0")
	f("HTTP/1.2")
	f("HTTP/0.9")
	f("HTTP/3")
	c := dial(t, s).send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	requireError(t, c.response(), 505, contract.InvalidParameter)
	c.ended()
	c = dial(t, s).send("POST /base/in HTTP/1.0\r\n" + good + "Content-Length: 5\r\n\r\nabcde")
	require.Equal(t, 200, c.response().StatusCode)
}

// TestSpaceInHeaderName checks that a header that a proxy could read as another one is rejected.
func TestSpaceInHeaderName(t *testing.T) {
	s := start(t, &probe{}, nil)
	c := dial(t, s).send(post + good + "Content Length: 5\r\nX: y\r\n\r\n")
	requireError(t, c.response(), 400, contract.InvalidParameter)
	c.ended()
}

// TestTarget checks requests for targets that no path can have.
func TestTarget(t *testing.T) {
	s := start(t, &probe{}, nil)
	f := func(line string, status int, code contract.Code, description string) {
		t.Helper()
		for _, body := range []string{"", "Content-Length: 5\r\n"} {
			c := dial(t, s).send(line + " HTTP/1.1\r\n" + good + body + "\r\n")
			require.Contains(t, requireError(t, c.response(), status, code).Description, description)
			if status == 400 {
				c.ended()
			}
		}
	}
	f("GET *", 400, contract.InvalidParameter, "malformed")
	f("POST *", 400, contract.InvalidParameter, "malformed")
	f("OPTIONS *", 404, contract.NotFound, "no such path")
	f("POST /base/in#", 400, contract.InvalidParameter, "%23")
	f("POST /base/in#x", 400, contract.InvalidParameter, "%23")
	f("POST /base/in?a=b#x", 400, contract.InvalidParameter, "%23")
	f("POST http://h/base/in#x", 400, contract.InvalidParameter, "%23")
	f("GET /nothing#x", 400, contract.InvalidParameter, "%23")
}

// TestBodyOfGet checks that a GET is served without waiting for its body, which is ignored and not
// parsed as a request.
func TestBodyOfGet(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.HeaderTimeout, c.DiscardTime = time.Hour, patience })
	f := func(method, announced, body string) {
		t.Helper()
		c := dial(t, s).send(method + " /base/map HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey view-key\r\n" + announced + "\r\n" + body)
		resp := c.responseTo(method)
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, resp.Close)
		c.ended()
	}
	for _, method := range []string{"GET", "HEAD"} {
		f(method, "Content-Length: 5\r\n", "")
		f(method, "Content-Length: 5\r\nExpect: 100-continue\r\n", "")
		f(method, "Transfer-Encoding: chunked\r\n", "")
		f(method, "Content-Length: 86\r\n", smuggled)
		f(method, "Transfer-Encoding: chunked\r\n", "56\r\n"+smuggled+"\r\n0\r\n\r\n"+smuggled)
	}
	require.EqualValues(t, 10, p.served.Load())
}

func TestOpenMethods(t *testing.T) {
	s := start(t, &probe{before: func(c *contract.Client, h *fasthttp.RequestHeader) *contract.APIError {
		if open := string(h.Method()) == "GET"; open != (c == nil) {
			return contract.NewError(contract.InternalError, "the client is nil exactly where no key is needed")
		}
		return nil
	}}, nil)
	f := func(request string, want int) {
		t.Helper()
		require.Equal(t, want, dial(t, s).send(request).response().StatusCode)
	}
	f("GET /base/open HTTP/1.1\r\nHost: h\r\n\r\n", 200)
	f("GET /base/open?apiKey=no HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey no\r\n\r\n", 200) // the route needs no key
	f("POST /base/open HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 401)
	f("POST /base/open HTTP/1.1\r\n"+good+"Content-Length: 0\r\n\r\n", 200)
}

func TestTrace(t *testing.T) {
	s := start(t, &probe{}, nil)
	f := func(traceparent, want string) {
		t.Helper()
		resp := dial(t, s).send("GET /x HTTP/1.1\r\nHost: h\r\nTraceparent: " + traceparent + "\r\n\r\n").response()
		body := requireError(t, resp, 404, contract.NotFound)
		require.Equal(t, want != "", body.TraceID == want)
	}
	id := "4bf92f3577b34da6a3ce929d0e0e4736"
	f("00-"+id+"-00f067aa0ba902b7-01", id)
	f("", "")
	f("00-"+strings.ToUpper(id)+"-00f067aa0ba902b7-01", "")
	f("00-"+strings.Repeat("0", 32)+"-00f067aa0ba902b7-01", "")
	f("00-"+id, "")
	f("ff-"+id+"-00f067aa0ba902b7-01", "")
	f("0g-"+id+"-00f067aa0ba902b7-01", "")
	f("00-"+id+"-00f067aa0ba902b7-01-more", "")
	f("cc-"+id+"-00f067aa0ba902b7-01-more", id)
	f("cc-"+id+"-00f067aa0ba902b7-01more", "")
	f("00-"+id+"-0000000000000000-01", "")
	f("00-"+id+"-00f067aa0ba902b7-0x", "")
	ok := dial(t, s).send(post + good + "Content-Length: 0\r\nTraceparent: 00-" + id + "-00f067aa0ba902b7-01\r\n\r\n").response()
	require.Equal(t, id, ok.Header.Get("Trace-Id"))
}

func TestEchoIsTruncatedAndEscaped(t *testing.T) {
	s := start(t, &probe{}, nil)
	path := "/\"\\" + strings.Repeat("é", 100)
	body := requireError(t, dial(t, s).send("GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n").response(), 404, contract.NotFound)
	require.Contains(t, body.Description, strings.Repeat("é", 30))
	require.NotContains(t, body.Description, strings.Repeat("é", 32), "at most 64 bytes")
	require.NotContains(t, body.Description, "�", "cut between characters")
	require.Empty(t, body.Causes)
}

func TestEveryRequestCodeHasAStatus(t *testing.T) {
	for code := contract.NotFound; code <= contract.InternalError; code++ {
		require.GreaterOrEqual(t, code.Status(), 400, code)
	}
	for _, code := range []contract.Code{contract.InvalidType, contract.MissingField, contract.DuplicateField} {
		require.Equal(t, 400, code.Status(), code) // of the member measurements
	}
	var resp fasthttp.Response
	writeError(&resp, contract.NewError(contract.UnknownDetector, "of an item"), someTrace)
	require.Equal(t, 500, resp.StatusCode())
}

func TestRetryAfterRoundsUp(t *testing.T) {
	f := func(d time.Duration, want int64) { t.Helper(); require.Equal(t, want, retryAfter(d)) }
	f(1, 1)
	f(time.Second, 1)
	f(time.Second+1, 2)
	f(90*time.Second, 90)
}

// TestRetryAfterIsSpread checks that clients that are rejected together do not return together, and
// not too early, except those of a key that has exceeded its rate.
func TestRetryAfterIsSpread(t *testing.T) {
	f := func(code contract.Code, after time.Duration, least, most int) {
		t.Helper()
		got := map[int]bool{}
		for range 1000 {
			var resp fasthttp.Response
			writeError(&resp, &contract.APIError{Code: code, RetryAfter: after}, someTrace)
			n, err := strconv.Atoi(string(resp.Header.Peek("Retry-After")))
			require.NoError(t, err)
			got[n] = true
		}
		require.Len(t, got, most-least+1)
		require.True(t, got[least] && got[most], got)
	}
	f(contract.ServiceUnavailable, time.Second, 1, 2)
	f(contract.ServiceUnavailable, 5*time.Second, 5, 10)
	f(contract.IdempotencyKeyInUse, 900*time.Millisecond, 1, 2)
	f(contract.RateLimited, 7*time.Second, 7, 7)
}

func TestPathOf(t *testing.T) {
	f := func(target, want string) { t.Helper(); require.Equal(t, want, string(pathOf([]byte(target)))) }
	f("/a/b", "/a/b")
	f("/a?b=/c?d", "/a")
	f("http://h:1/a/b?c", "/a/b")
	f("http://h", "/")
	f("http://h?x=://y/z", "/")
	f("*", "*")
	f("", "")
}

func TestRouteIsMountedOnce(t *testing.T) {
	r := Route{Path: "/a", Methods: []string{"GET"}, Endpoint: &probe{}}
	_, err := newRoutes("/b", []Route{r, r})
	require.ErrorContains(t, err, "twice")
}

func TestPathsWithParameters(t *testing.T) {
	var list []Route
	for _, path := range []string{"/tiles", "/tiles/{z}/{x}/{y}.mvt", "/batches/{Batch-Id}"} {
		list = append(list, Route{Path: path, Methods: []string{"GET"}, Endpoint: &probe{}})
	}
	routes, err := newRoutes("/b", list)
	require.NoError(t, err)
	f := func(target, want string) {
		t.Helper()
		if r := routes.find([]byte(target)); want == "" {
			require.Nil(t, r)
		} else {
			require.NotNil(t, r)
			require.Equal(t, want, r.Path)
		}
	}
	f("/b/tiles?x", "/tiles")
	f("/b/tiles/1/2/3.mvt?since=4", "/tiles/{z}/{x}/{y}.mvt")
	f("http://h/b/batches/0193a5c2", "/batches/{Batch-Id}")
	for _, other := range []string{
		"/b/tiles/1/2/3.mvtx", "/b/tiles/1/2/.mvt", "/b/tiles//2/3.mvt", "/b/tiles/1/2", "/b/tiles/1/2/3.mvt/", "/b/tiles/",
		"/b/batches", "/b/batches/", "/b/batches/a/", "/b/batches/a/b", "/batches/a", "b/batches/a", "",
	} {
		f(other, "")
	}
}

// FuzzErrorBody checks that any description and parameter become valid JSON.
func FuzzErrorBody(f *testing.F) {
	f.Add([]byte("plain"), "detail")
	f.Add([]byte("\xff\xfe\"\\\n\x00</script>"), "\u2028")
	f.Add([]byte(strings.Repeat("ü", 64)), "")
	f.Fuzz(func(t *testing.T, input []byte, parameter string) {
		text := contract.Echo(input)
		if n := len(strings.ReplaceAll(text, "�", "?")); n > contract.EchoLimit {
			t.Fatalf("got %d bytes of input, want at most %d", n, contract.EchoLimit)
		}
		var resp fasthttp.Response
		writeError(&resp, &contract.APIError{Code: contract.InvalidParameter, Description: "is " + text, Parameter: parameter}, someTrace)
		body := requireError(t, asHTTP(t, &resp), 400, contract.InvalidParameter)
		if want := "is " + text; body.Description != want {
			t.Fatalf("got description %q, want %q", body.Description, want)
		}
		if (parameter != "") != (len(body.Causes) == 1) {
			t.Fatalf("parameter %q: got causes %v, want one for a parameter and none without", parameter, body.Causes)
		}
	})
}

const someTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// TestDocsAreLinked checks that errors of requests, and only these, lead to the documentation.
func TestDocsAreLinked(t *testing.T) {
	s := &Server{cfg: Config{BasePath: "/base"}}
	for code := contract.NotFound; code <= contract.InternalError; code++ {
		var resp fasthttp.Response
		writeError(&resp, contract.NewError(code, "no"), someTrace)
		s.linkDocs(&resp)
		want := ""
		if code.Status() < 500 {
			want = `</base/docs>; rel="service-doc"`
		}
		require.Equal(t, want, string(resp.Header.Peek("Link")), code)
	}
}
