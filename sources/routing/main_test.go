package routing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/pipeline/lib/admission"
	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
	"trafficd/sources/api"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // runs forever, once per process
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// waitLimit is the maximum time that a test waits for an event.
const waitLimit = time.Minute

// server runs the service on a real port, with the clients a and b.
type server struct {
	t       testing.TB
	service *Service
	api     *api.Server
	url     string
}

// start starts a server. At the end of the test it stops the server and checks that all quotas have
// been released.
func start(t testing.TB, change func(*Config), prepare ...func(*Service)) *server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.RateGrace = cfg.ReceiveTimeout // the machine may be slow
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	front := api.DefaultConfig()
	front.Listen, front.BasePath, front.DrainGrace = "127.0.0.1:0", "/base", 10*time.Millisecond
	front.WriteTimeout = 2 * waitLimit
	for _, name := range []string{"a", "b", "a2"} { // a2 is another key of client a
		digest, client := sha256.Sum256([]byte(name)), ""
		if name == "a2" {
			client = "client a"
		}
		front.Keys = append(front.Keys, api.KeyEntry{Name: "client " + name, Client: client, SHA256: hex.EncodeToString(digest[:]), ProductInstance: "city", Rights: []string{"routing"}})
	}
	keys, err := api.OpenKeyring(front, zerolog.Nop())
	require.NoError(t, err)
	s := &server{t: t, service: New(cfg, "http", zerolog.Nop())}
	for _, f := range prepare {
		f(s.service)
	}
	s.api, err = api.New(front, keys, []api.Route{{
		Path: Path, Methods: []string{"GET", "HEAD", "POST"}, Open: []string{"GET", "HEAD"}, Right: contract.RightRouting, Endpoint: s.service, Basic: true,
	}}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, s.api.Start())
	s.url = "http://" + s.api.Addr().String() + "/base" + Path
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.service.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		require.NoError(t, s.api.Stop(ctx))
		s.service.Stop()
		keys.Close()
		for _, q := range []*admission.Quotas{s.service.receiver.Slots, s.service.memory, s.service.watches} {
			require.Zero(t, q.Total(), q.Noun)
		}
		free := make(chan struct{})
		go func() {
			defer close(free)
			for range s.service.cfg.Concurrency {
				s.service.cpu.Take("")
			}
		}()
		select {
		case <-free:
		case <-time.After(waitLimit):
			t.Error("a request has not passed on its turn")
		}
	})
	return s
}

// post sends a body as client a, or with other headers.
func (s *server) post(body string, headers ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "apiKey a")
	req.Header.Set("Content-Type", "text/xml; charset=utf-8")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp, text
}

// call posts a body and returns the response or the fault. It requires the matching status.
func (s *server) call(body string, headers ...string) (xroute.Response, *xroute.Fault) {
	s.t.Helper()
	resp, text := s.post(body, headers...)
	require.Equal(s.t, "text/xml; charset=utf-8", resp.Header.Get("Content-Type"), "%s", text)
	response, err := xroute.ReadResponse(bytes.NewReader(text), xroute.DefaultLimits())
	var fault *xroute.Fault
	if errors.As(err, &fault) {
		require.Equal(s.t, http.StatusInternalServerError, resp.StatusCode)
		if fault.Exception != nil {
			require.Equal(s.t, resp.Header.Get("Trace-Id"), *fault.Exception.Base().TransactionID)
		}
		return nil, fault
	}
	require.NoError(s.t, err, "%s", text)
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	return response, nil
}

// ask posts a body and requires a response of type R.
func ask[R xroute.Response](s *server, body string, headers ...string) R {
	s.t.Helper()
	response, fault := s.call(body, headers...)
	require.Nil(s.t, fault)
	require.IsType(s.t, *new(R), response)
	return response.(R)
}

// envelope wraps a message. The prefix r is the namespace of messages, c of geometries and jobs, v
// of the caller context and p of strings.
func envelope(message string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xmlns:c="urn:xserver:common" xmlns:r="urn:xserver:routing" xmlns:v="urn:xserver:service" xmlns:p="urn:xserver:primitives"><s:Body>` +
		message + `</s:Body></s:Envelope>`
}

// xmlOptions returns RequestOptions; format contains the attributes coordFormat and optionally
// srId.
func xmlOptions(format string, encodings ...string) string {
	list := ""
	for _, e := range encodings {
		list += "<c:GeometryEncoding>" + e + "</c:GeometryEncoding>"
	}
	return `<r:options ` + format + `><r:wrappedResponseGeometry>` + list + `</r:wrappedResponseGeometry></r:options>`
}

// caller returns a CallerContext with properties, given as alternating keys and values.
func caller(properties ...string) string {
	list := ""
	for i := 0; i < len(properties); i += 2 {
		list += fmt.Sprintf(`<v:CallerContextProperty key=%q value=%q/>`, properties[i], properties[i+1])
	}
	return `<r:callerContext><v:wrappedProperties>` + list + `</v:wrappedProperties></r:callerContext>`
}

// convert returns a convertGeometry request. typ is the xsi:type of the geometry, followed by its
// attributes.
func convert(typ, content, options, caller string) string {
	return envelope(`<r:convertGeometry><r:geometry xsi:type="c:` + typ + `>` + content + `</r:geometry>` + options + caller + `</r:convertGeometry>`)
}
