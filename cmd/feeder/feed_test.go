package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/feeder/config"
	"trafficd/cmd/feeder/internal/spool"
	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/ops"
	"trafficd/schemas/contract"
)

// pulled is a feed without a daemon.
func pulled(t *testing.T, handler http.HandlerFunc, change ...func(*authority.Feed)) (*feed, *siteList) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, _ := feedConfig(server.URL, change...)
	c.Spool.Dir = t.TempDir()
	list := &siteList{}
	f, err := newFeed(c, c.Feeds[0], nil, list, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, f.recall())
	return f, list
}

func feedConfig(url string, change ...func(*authority.Feed)) (*config.Config, error) {
	c := config.Default()
	f := authority.Feed{Name: "test", URL: url, Format: "ndw", Every: time.Second}
	for _, apply := range change {
		apply(&f)
	}
	c.Feeds = []authority.Feed{f}
	return &c, nil
}

func plain(t *testing.T, packed []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	packed, err := compress(b)
	require.NoError(t, err)
	return packed
}

// TestDocuments pulls what servers send instead of a publication, and after it a publication. Only
// the publication changes anything.
func TestDocuments(t *testing.T) {
	good := document(0, 10)
	f := func(what, want string, answer http.HandlerFunc) {
		t.Helper()
		answers := []http.HandlerFunc{answer}
		feed, list := pulled(t, func(w http.ResponseWriter, r *http.Request) {
			if len(answers) > 0 {
				answer := answers[0]
				answers = answers[1:]
				answer(w, r)
				return
			}
			_, _ = w.Write(good)
		})
		err := feed.pull(t.Context())
		if want == "" {
			require.NoError(t, err, what)
			require.Positive(t, feed.spool.Bytes(), what)
			return
		}
		require.ErrorContains(t, err, want, what)
		require.Zero(t, feed.spool.Bytes(), what)
		require.False(t, list.isReady(), what)
		require.NoError(t, feed.pull(t.Context()), what)
		require.Positive(t, feed.spool.Bytes(), what)
		require.True(t, list.isReady(), what)
	}
	send := func(status int, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	f("gzip without a header", "", send(200, good))
	f("not compressed", "", send(200, plain(t, good)))
	f("compressed twice", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped(t, good))
	})
	f("an HTML page", "HTML", send(200, []byte("<!DOCTYPE html><html><body>Maintenance</body></html>")))
	f("an HTML page that is XML", "HTML", send(200, []byte("<html><body><p>Maintenance</p></body></html>")))
	f("an error", "500 Internal Server Error", send(500, good))
	f("not found", "404 Not Found", send(404, good))
	f("a 304 that was not asked for", "304 Not Modified", send(304, nil))
	f("nothing", "the response is empty", send(200, nil))
	f("another document", "ndw", send(200, []byte("<other/>")))
	f("half a document", "", send(200, good))
	f("half of the gzip", "unexpected EOF", send(200, good[:len(good)/2]))
	f("half of the XML", "ndw", send(200, plain(t, good)[:5000]))
	f("no checksum", "unexpected EOF", send(200, good[:len(good)-4]))
	f("less than announced", "the response ends after 100 bytes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(good)))
		_, _ = w.Write(good[:100])
	})
	f("a connection that ends", "the response ends after", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(good[:100])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	f("no values", errEmpty.Error(), send(200, []byte(`<d2LogicalModel><payloadPublication><siteMeasurements>`+
		`<measurementSiteReference id="S"/></siteMeasurements></payloadPublication></d2LogicalModel>`)))
}

// TestConditionalGet checks that a document is not downloaded again if it was used, and downloaded
// again if not.
func TestConditionalGet(t *testing.T) {
	var requests []*http.Request
	body := []byte("half")
	f, _ := pulled(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", "Sun, 01 Mar 2026 00:01:05 GMT")
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(body)
	})
	require.Error(t, f.pull(t.Context()))
	body = document(0, 2)
	require.NoError(t, f.pull(t.Context()))
	require.NoError(t, f.pull(t.Context()))
	require.Len(t, requests, 3)
	require.Empty(t, requests[1].Header.Get("If-None-Match"))
	require.Equal(t, `"1"`, requests[2].Header.Get("If-None-Match"))
	require.Equal(t, "Sun, 01 Mar 2026 00:01:05 GMT", requests[2].Header.Get("If-Modified-Since"))
	require.Equal(t, "gzip", requests[2].Header.Get("Accept-Encoding"))
}

func TestCredentials(t *testing.T) {
	envelope := filepath.Join(t.TempDir(), "pull.xml")
	require.NoError(t, os.WriteFile(envelope, []byte("<Envelope/>"), 0o600))
	var got *http.Request
	var body []byte
	f, _ := pulled(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = w.Write(document(0, 1))
	}, func(f *authority.Feed) {
		f.Headers, f.BodyFile = []string{"Authorization: Bearer abc", "SOAPAction: urn:pull"}, envelope
	})
	require.NoError(t, f.pull(t.Context()))
	require.Equal(t, http.MethodPost, got.Method)
	require.Equal(t, "Bearer abc", got.Header.Get("Authorization"))
	require.Equal(t, "urn:pull", got.Header.Get("SOAPAction"))
	require.Equal(t, "text/xml; charset=utf-8", got.Header.Get("Content-Type"))
	require.Equal(t, "<Envelope/>", string(body))

	f, _ = pulled(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = w.Write(document(0, 1))
	}, func(f *authority.Feed) { f.URL = strings.Replace(f.URL, "http://", "http://user:secret@", 1) })
	require.NoError(t, f.pull(t.Context()))
	user, password, ok := got.BasicAuth()
	require.Equal(t, "user secret true", fmt.Sprint(user, " ", password, " ", ok))
}

func TestClientCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write(document(0, 1))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir() // the certificate of the server is also that of the client
	ca, private := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	secret, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	for path, block := range map[string]*pem.Block{ca: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, private: {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(path, append([]byte("Bag Attributes\n"), pem.EncodeToMemory(block)...), 0o600))
	}
	source := func(cert, key string) error {
		s, err := authority.NewSource(authority.Feed{CA: ca, Cert: cert, Key: key}, server.URL, filepath.Join(t.TempDir(), "download"))
		require.NoError(t, err)
		_, _, err = s.Fetch(t.Context())
		return err
	}
	require.NoError(t, source(ca, private))
	require.ErrorContains(t, source("", ""), "403 Forbidden")
}

// TestClientCertificateForTrafficd checks that the daemon gets the client certificate, and that a
// new connection uses a renewed one.
func TestClientCertificateForTrafficd(t *testing.T) {
	var serials []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serials = append(serials, r.TLS.PeerCertificates[0].SerialNumber.String()+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = io.WriteString(w, `{"accepted":0}`)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	secret, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	c := config.Trafficd{
		URL: server.URL, CA: write("ca.pem", "CERTIFICATE", server.Certificate().Raw),
		Cert: filepath.Join(dir, "cert.pem"), CertKey: write("key.pem", "PRIVATE KEY", secret),
	}
	_, err = c.Client()
	require.ErrorContains(t, err, "cannot load the client certificate trafficd.cert "+c.Cert+" with its key trafficd.cert_key "+c.CertKey)
	issue := func(serial int64) {
		private := server.TLS.Certificates[0].PrivateKey.(crypto.Signer)
		template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		require.NoError(t, err)
		write("cert.pem", "CERTIFICATE", der)
	}
	issue(7)
	daemon, err := c.Client()
	require.NoError(t, err)
	for _, serial := range []int64{7, 8} {
		issue(serial)
		_, err = daemon.Post(t.Context(), "", nil)
		require.NoError(t, err)
		daemon.Close()
	}
	require.Equal(t, []string{"7", "8"}, serials)
}

func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document(0, 1)) }))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	f := func(to, want string, change ...func(*authority.Feed)) {
		t.Helper()
		feed, _ := pulled(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }, change...)
		err := feed.pull(t.Context())
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	f(other.URL, "")
	f(elsewhere, "")
	f(elsewhere, "must not get the credentials", func(f *authority.Feed) { f.Headers = []string{"Api-Key: secret"} })
	f(other.URL, "redirects the POST", func(f *authority.Feed) { f.BodyFile = "/dev/null" })
	f("/?key=secret", "more than 5 redirects")
}

// TestFull checks that the feed is not pulled while the spool is full.
func TestFull(t *testing.T) {
	minute := 0
	f, _ := pulled(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document(minute, 1)); minute++ })
	small, err := spool.Open(f.dir, 1)
	require.NoError(t, err)
	f.spool = small
	require.NoError(t, f.pull(t.Context()))
	require.ErrorIs(t, f.pull(t.Context()), errFull)
	require.Equal(t, 1, minute)
}

// TestStale checks that a feed without new values is reported, whether it is dead, frozen or empty.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{cfg: authority.Feed{Every: time.Minute}}
		f.state.Store(&status{advanced: time.Now()})
		time.Sleep(staleAfter * time.Minute)
		require.Empty(t, f.stale())
		time.Sleep(time.Second)
		require.Contains(t, f.stale(), "nothing new was published since 2000-01-01")
		f.state.Update(func(s *status) { s.pull = errEmpty })
		require.Equal(t, errEmpty.Error(), f.stale())
		f.state.Update(func(s *status) { s.advanced = time.Now() })
		require.Empty(t, f.stale())
	})
}

// TestSites checks that trafficd has the list before it gets the values of a new site.
func TestSites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &siteList{}
		f := &feedSites{known: map[string]bool{}, seen: map[string]bool{}}
		l.feeds = []*feedSites{f}
		get := func(etag, encoding string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/sites", nil)
			r.Header.Set("If-None-Match", etag)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			l.ServeHTTP(w, r)
			return w
		}
		require.Equal(t, http.StatusServiceUnavailable, get("", "").Code)
		_, err := l.add(f, []string{"b", `"a"`})
		require.NoError(t, err)
		require.Equal(t, patience, l.wait())
		first := get("", "")
		require.JSONEq(t, `[{"detectorCode":"\"a\""},{"detectorCode":"b"}]`, first.Body.String())
		packed := get("", "gzip")
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
		require.Equal(t, first.Body.String(), string(plain(t, packed.Body.Bytes())))
		require.Equal(t, patience, l.wait(), "it may not use it yet")
		etag := first.Header().Get("ETag")
		require.Equal(t, http.StatusNotModified, get(etag, "gzip").Code)
		require.Zero(t, l.wait())

		added, err := l.add(f, []string{"b"})
		require.NoError(t, err)
		require.False(t, added)
		require.Zero(t, l.wait())
		_, err = l.add(f, []string{"c"})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, get(etag, "").Code)
		require.Equal(t, patience, l.wait())
		time.Sleep(patience)
		require.Zero(t, l.wait(), "a daemon that never reads the list")
	})
}

// TestRestart checks that the list is the same after a restart, before the first pull.
func TestRestart(t *testing.T) {
	f, list := pulled(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document(0, 3)) })
	require.NoError(t, f.pull(t.Context()))
	c, _ := feedConfig("http://127.0.0.1:1")
	c.Spool.Dir = filepath.Dir(f.dir)
	again := &siteList{}
	restarted, err := newFeed(c, c.Feeds[0], nil, again, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, restarted.recall())
	require.Equal(t, list.etag, again.etag)
	require.NotEmpty(t, list.etag)
	require.Equal(t, f.spool.Bytes(), restarted.spool.Bytes())
}

// TestClockChanges publishes the local times of Madrid and Hong Kong as their authorities do,
// without an offset, over both changes of the clock and over midnight. The feeder pulls each
// document twice, and is restarted again and again, also in the hour that is repeated. Each
// interval is sent once.
func TestClockChanges(t *testing.T) {
	f := func(format, zone string, every time.Duration, first string, document func(local time.Time) string) {
		t.Helper()
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		at, err := time.Parse(time.RFC3339, first)
		require.NoError(t, err)
		var text string
		f, _ := pulled(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) },
			func(f *authority.Feed) { f.Format = format })
		got := map[string]int{}
		want := 0
		for ; want < int(5*time.Hour/every); want++ {
			local := at.In(location)
			text = document(local)
			require.NoError(t, f.pull(t.Context()))
			text += "\n" // the same publication with another digest
			if err := f.pull(t.Context()); err != nil {
				require.ErrorIs(t, err, errEmpty)
			}
			if want%7 == 0 {
				c, _ := feedConfig(f.cfg.URL, func(a *authority.Feed) { a.Format = format })
				c.Spool.Dir = filepath.Dir(f.dir)
				data := f.data
				f, err = newFeed(c, c.Feeds[0], nil, &siteList{}, zerolog.Nop())
				require.NoError(t, err)
				require.NoError(t, f.recall())
				f.data = data
			}
			at = at.Add(every)
		}
		for number := uint64(1); number <= uint64(want); number++ {
			require.NoError(t, f.spool.Batches(number, func(_ int, body []byte) error {
				var batch struct{ Measurements []contract.Measurement }
				require.NoError(t, json.Unmarshal(plain(t, body), &batch))
				for _, m := range batch.Measurements {
					got[m.TimestampFrom.Format(time.RFC3339)]++
				}
				return nil
			}))
		}
		require.Len(t, got, want, "%s from %s", zone, first)
		for from, n := range got {
			require.Equal(t, 1, n, from)
		}
	}
	madrid := func(local time.Time) string {
		return `<pms><fecha_hora>` + local.Format("02/01/2006 15:04:05") + `</fecha_hora><pm><idelem>1</idelem><intensidad>60</intensidad><error>N</error></pm></pms>`
	}
	f("madrid", "Europe/Madrid", 5*time.Minute, "2026-03-28T22:00:00Z", madrid) // over midnight and the skipped hour
	f("madrid", "Europe/Madrid", 5*time.Minute, "2026-10-24T21:30:00Z", madrid) // over midnight and the repeated hour
	f("hongkong", "Asia/Hong_Kong", 10*time.Minute, "2026-01-31T13:00:00Z", func(local time.Time) string {
		end := local.Add(30 * time.Second)
		return `<raw_speed_volume_list><date>` + local.Format(time.DateOnly) + `</date><periods><period><period_from>` + local.Format(time.TimeOnly) +
			`</period_from><period_to>` + end.Format(time.TimeOnly) + `</period_to><detectors><detector><detector_id>A</detector_id><lanes><lane>` +
			`<lane_id>Fast Lane</lane_id><volume>3</volume><valid>Y</valid></lane></lanes></detector></detectors></period></periods></raw_speed_volume_list>`
	})
}

// TestDeliver checks that a batch is sent with the same key and content until it is accepted.
func TestDeliver(t *testing.T) {
	type request struct{ key, body string }
	var got []request
	answers := []int{503, 401, 409, 0, 207}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		packed, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got = append(got, request{r.Header.Get("Idempotency-Key"), string(plain(t, packed))})
		status := answers[min(len(got), len(answers))-1]
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(contract.Result{Accepted: 4})
	}))
	defer server.Close()
	firstRetry, maxRetry = time.Millisecond, time.Millisecond
	defer func() { firstRetry, maxRetry = time.Second, 30*time.Second }()
	f, list := pulled(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document(0, 2)) })
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("k\n"), 0o600))
	daemon, err := config.Trafficd{URL: server.URL, KeyFile: key}.Client()
	require.NoError(t, err)
	f.daemon = daemon
	require.NoError(t, f.pull(t.Context()))
	list.read = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.deliver(ctx) }()
	require.Eventually(t, func() bool { return f.spool.Bytes() == 0 }, time.Minute, time.Millisecond)
	cancel()
	<-done
	require.Len(t, got, len(answers))
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	require.Len(t, got[0].key, 32)
	require.NotEqual(t, idempotencyKey("test", "1.0", nil), idempotencyKey("test", "2.0", nil), "a value that changes back is sent")
	require.Equal(t, ops.OK, readiness(list, []*feed{f}).Components["feeds.test"].State)
}

// siteTable returns a table of sites whose flow and speed are of lane 1, with positions.
func siteTable(sites int) []byte {
	var b strings.Builder
	b.WriteString(`<d2LogicalModel><payloadPublication><measurementSiteTable id="T" version="1">`)
	for site := range sites {
		fmt.Fprintf(&b, `<measurementSiteRecord id="S%d" version="7"><measurementSiteName><values><value lang="nl">Road %d</value></values></measurementSiteName>
<measurementSiteNumberOfLanes>1</measurementSiteNumberOfLanes>`, site, site)
		for i, kind := range []string{"trafficFlow", "trafficSpeed"} {
			fmt.Fprintf(&b, `<measurementSpecificCharacteristics index="%d"><measurementSpecificCharacteristics><period>60</period>
<specificLane>lane1</specificLane><specificMeasurementValueType>%s</specificMeasurementValueType></measurementSpecificCharacteristics></measurementSpecificCharacteristics>`, i+1, kind)
		}
		fmt.Fprintf(&b, `<measurementSiteLocation><locationForDisplay><latitude>52.%04d</latitude><longitude>4.5</longitude></locationForDisplay></measurementSiteLocation>
</measurementSiteRecord>`, site%10_000)
	}
	b.WriteString(`</measurementSiteTable></payloadPublication></d2LogicalModel>`)
	return []byte(b.String())
}

// TestTable checks that nothing is pulled before the site table was read, that codes, totals and
// the list of sites follow it, and that the last one is used after a restart without network.
func TestTable(t *testing.T) {
	var table []byte
	withTable := func(f *authority.Feed) { f.Sites = f.URL + "/table" }
	minute := 0
	f, list := pulled(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/table":
			_, _ = w.Write(document(minute, 3))
		case table != nil:
			_, _ = w.Write(table)
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
	}, withTable)
	require.ErrorContains(t, f.pull(t.Context()), "the site table is missing")
	require.Zero(t, f.spool.Bytes())
	require.False(t, list.isReady())

	table = gzipped(t, siteTable(2)) // the third site of the document is not in it
	require.NoError(t, f.pull(t.Context()))
	items := func(f *feed, number uint64) (got []string) {
		require.NoError(t, f.spool.Batches(number, func(_ int, body []byte) error {
			var batch struct{ Measurements []contract.Measurement }
			require.NoError(t, json.Unmarshal(plain(t, body), &batch))
			for _, m := range batch.Measurements {
				got = append(got, fmt.Sprint(m.DetectorCode, " ", m.MeasureTypeCode, " ", m.Value))
			}
			return nil
		}))
		return got
	}
	want := []string{
		"S0 flow.lane1 60", "S0 speed.lane1 50", "S0 flow 60", "S0 speed 50",
		"S1 flow.lane1 120", "S1 speed.lane1 50", "S1 flow 120", "S1 speed 50",
		"S2 flow.i1 180", "S2 speed.i2 50",
	}
	require.Equal(t, want, items(f, 1))
	require.JSONEq(t, `[
		{"detectorCode": "S0", "name": "Road 0", "longitude": 4.5, "latitude": 52, "lanes": 1, "version": "7"},
		{"detectorCode": "S1", "name": "Road 1", "longitude": 4.5, "latitude": 52.0001, "lanes": 1, "version": "7"},
		{"detectorCode": "S2"}]`, string(plain(t, list.body)))

	c, _ := feedConfig("http://127.0.0.1:1", withTable)
	c.Spool.Dir = filepath.Dir(f.dir)
	again := &siteList{}
	restarted, err := newFeed(c, c.Feeds[0], nil, again, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, restarted.recall())
	require.Equal(t, list.etag, again.etag)
	minute = 1
	restarted.data = f.data
	require.NoError(t, restarted.pull(t.Context()), "the table cannot be pulled, but the last one is known")
	require.Contains(t, items(restarted, 2), "S0 flow.lane1 60")
}
