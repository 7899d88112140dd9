package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/ops"
	"trafficd/schemas/contract"
)

// pipes lets all HTTP clients that are created in a synctest bubble reach one server there.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }
func (p pipes) Close() error   { return nil }

// repeated is a feed that is pulled, in a bubble of synctest, until its context is done.
func repeated(t *testing.T, every time.Duration, handler http.HandlerFunc) (f *feed, list *siteList) {
	t.Helper()
	p := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(p) }()
	transport := http.DefaultTransport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, accepted := net.Pipe()
		select {
		case p.connections <- accepted:
			return client, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { transport.DialContext = dial }()
	c, _ := feedConfig("http://authority", func(f *authority.Feed) { f.Every = every })
	c.Spool.Dir = t.TempDir()
	list = &siteList{}
	f, err := newFeed(c, c.Feeds[0], nil, list, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, f.recall())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.repeat(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		time.Sleep(time.Minute) // handlers end
		close(p.closed)
		_ = server.Close()
	})
	return f, list
}

// spooled returns how often each interval of each detector and type is in the spool, by its
// beginning.
func spooled(t *testing.T, f *feed) map[string]int {
	t.Helper()
	got := map[string]int{}
	for number := uint64(1); ; number++ {
		err := f.spool.Batches(number, func(_ int, body []byte) error {
			var batch struct{ Measurements []contract.Measurement }
			require.NoError(t, json.Unmarshal(plain(t, body), &batch))
			for _, m := range batch.Measurements {
				got[fmt.Sprint(m.DetectorCode, " ", m.MeasureTypeCode, " ", m.TimestampFrom.Format(time.RFC3339), " ", m.Value)]++
			}
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) {
			return got
		}
		require.NoError(t, err)
	}
}

// TestPublicationsWithoutHistory pulls a feed that shows only the previous minute, 20 s after its
// end. Every third response is an error, and others take 9 s. No minute is missed, and none is sent
// twice, although the server sends neither ETag nor Last-Modified.
func TestPublicationsWithoutHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 60
		start, requests := time.Now(), 0
		f, _ := repeated(t, 30*time.Second, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			switch requests % 3 {
			case 0:
				w.WriteHeader(http.StatusInternalServerError)
				return
			case 1:
				time.Sleep(9 * time.Second)
			}
			w.Header()["Date"] = nil
			_, _ = w.Write(document(int((time.Since(start)-20*time.Second)/time.Minute), 2))
		})
		time.Sleep(minutes*time.Minute + 15*time.Second) // the last minute is published after its end
		synctest.Wait()
		got := spooled(t, f)
		require.Len(t, got, minutes*2*2)
		for what, n := range got {
			require.Equal(t, 1, n, what)
		}
		require.Equal(t, 2*minutes+1, requests)
	})
}

// TestDeadFeed checks that a feed that fails for five days says so, that the sites stay in the
// list, which the daemon goes on reading, and that the error ends with its cause.
func TestDeadFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, dead := time.Now(), false
		f, list := repeated(t, 10*time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			if dead {
				http.Error(w, "out of order", http.StatusBadGateway)
				return
			}
			_, _ = w.Write(document(int(time.Since(start)/time.Minute), 3))
		})
		state := func() ops.Component {
			synctest.Wait()
			return readiness(list, []*feed{f}).Components["feeds.test"]
		}
		time.Sleep(time.Hour)
		require.Equal(t, ops.OK, state().State)
		before := string(plain(t, list.body))
		require.Equal(t, 3, strings.Count(before, "detectorCode"))

		dead = true
		time.Sleep(5 * 24 * time.Hour)
		require.Equal(t, ops.Degraded, state().State)
		require.Contains(t, fmt.Sprint(state().Reasons), "502 Bad Gateway")
		require.NotEmpty(t, f.stale())
		require.NotEqual(t, ops.NotReady, readiness(list, []*feed{f}).Components["feeder"].State)
		require.Equal(t, before, string(plain(t, list.body)), "no detector is at fault")

		dead = false
		time.Sleep(10 * time.Minute)
		require.Equal(t, ops.OK, state().State)
		require.Empty(t, state().Reasons)
		require.Empty(t, f.stale())
		require.WithinDuration(t, time.Now(), f.state.Load().advanced, 10*time.Minute)
	})
}

// TestZerosOverMidnight checks that flows of zero are sent like any other, before and after
// midnight.
func TestZerosOverMidnight(t *testing.T) {
	minute := 0
	f, _ := pulled(t, func(w http.ResponseWriter, _ *http.Request) {
		at := daemontest.Day.Add(24*time.Hour + time.Duration(minute-30)*time.Minute).Format(time.RFC3339)
		fmt.Fprintf(w, `<d2LogicalModel><payloadPublication><siteMeasurements><measurementSiteReference id="S" version="1"/>
			<measurementTimeDefault>%s</measurementTimeDefault><measuredValue index="1"><measuredValue><basicData type="TrafficFlow"><vehicleFlow>
			<vehicleFlowRate>0</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
			</siteMeasurements></payloadPublication></d2LogicalModel>`, at)
	})
	for ; minute < 60; minute++ {
		require.NoError(t, f.pull(t.Context()))
	}
	require.Len(t, spooled(t, f), 60)
}

// TestTableHasMoved checks that the last site table is used when its address is gone, and that the
// feeder says so until it is found again.
func TestTableHasMoved(t *testing.T) {
	minute, gone := 0, false
	f, list := pulled(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/table":
			_, _ = w.Write(document(minute, 1))
		case gone:
			http.NotFound(w, r)
		default:
			_, _ = w.Write(siteTable(1))
		}
	}, func(f *authority.Feed) { f.Sites = f.URL + "/table" })
	pull := func() ops.Component {
		f.nextTable = time.Time{}
		require.NoError(t, f.pull(t.Context()))
		minute++
		return readiness(list, []*feed{f}).Components["feeds.test"]
	}
	require.Equal(t, ops.OK, pull().State)
	gone = true
	moved := pull()
	require.Equal(t, ops.Degraded, moved.State)
	require.Contains(t, fmt.Sprint(moved.Reasons), "/table: 404 Not Found")
	require.Contains(t, spooled(t, f), "S0 flow.lane1 "+daemontest.Day.Add(time.Minute).Format(time.RFC3339)+" 60")
	gone = false
	require.Equal(t, ops.OK, pull().State)
}

// TestLineBreaksOfCertificates uses a client certificate and a key whose line breaks were lost on
// their way through an environment variable.
func TestLineBreaksOfCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Len(t, r.TLS.PeerCertificates, 1)
		_, _ = w.Write(document(0, 1))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	for _, lineBreak := range []string{"\n", "\r\n", " ", `\n`, "", "\n\n"} {
		dir := t.TempDir()
		write := func(name, kind string, der []byte) string {
			text := "Bag Attributes\n" + string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "\n", lineBreak)), 0o600))
			return filepath.Join(dir, name)
		}
		cert := write("cert", "CERTIFICATE", server.Certificate().Raw)
		feed := authority.Feed{CA: cert, Cert: cert, Key: write("key", "PRIVATE KEY", secret)}
		s, err := authority.NewSource(feed, server.URL+"/?token=secret", filepath.Join(dir, "download"))
		require.NoError(t, err, "%q", lineBreak)
		_, _, err = s.Fetch(t.Context())
		require.NoError(t, err, "%q", lineBreak)
		server.CloseClientConnections()
	}
	s, err := authority.NewSource(authority.Feed{}, "http://user:secret@127.0.0.1:1/?token=secret", os.DevNull)
	require.NoError(t, err)
	_, _, err = s.Fetch(t.Context())
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error(), "secret")
}
