package layers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestLayersAreNotMixed replaces the layer repeatedly while clients read it through a server. All
// speeds of a generation equal its number, so that a mixed or incomplete layer is detected.
func TestLayersAreNotMixed(t *testing.T) {
	const streets, generations, readers = 200, 30, 6
	l := New(DefaultConfig(), zerolog.Nop())
	l.Prepare([]*contract.Client{client("UTC"), client("Asia/Tokyo")})
	publish := func(generation int) {
		all := generationOf(generation, streets)
		if generation%2 == 0 {
			replace(l, all)
		} else {
			for _, f := range all {
				l.Put(f)
			}
		}
		l.Publish(time.Now())
	}
	publish(0)
	l.build(time.Now())

	connect := serveInMemory(t, l)
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	reads := make([]atomic.Int64, readers)
	for reader := range readers {
		wait.Go(func() {
			encoding := []string{"identity", "gzip"}[reader%2]
			part := []struct {
				query   string
				streets int
			}{{"", streets}, {"?bbox=12,55,13,56", streets * 49 / 50}, {"?street=1001,1002,1003", 3}}[reader/2]
			for last := -1; ctx.Err() == nil; reads[reader].Add(1) {
				generation, err := readGeneration(t, connect, part.query, encoding, part.streets)
				if err != nil || generation < last {
					t.Errorf("%s: got generation %d after %d: %v", encoding, generation, last, err)
					return
				}
				last = generation
			}
		})
	}
	allHaveRead := func() bool {
		for i := range reads {
			if reads[i].Load() == 0 {
				return false
			}
		}
		return true
	}
	for generation := 1; (generation <= generations || !allHaveRead()) && !t.Failed(); generation++ { // on a busy machine a reader may be slow
		publish(generation)
		l.Put(forecast(1, 1, noon, 1, -1)) // not published
		l.Remove(1000, 1)
		l.build(time.Now())
		l.Put(generationOf(generation, 1)[0])
		l.Remove(1, 1)
	}
}

// generationOf returns forecasts whose speeds equal the number of the generation.
func generationOf(generation, streets int) []*pb.StreetForecast {
	all := make([]*pb.StreetForecast, 0, streets)
	for street := range int32(streets) {
		f := forecast(1000+street, 1, time.Now().Truncate(15*time.Minute), 4, 0)
		for _, p := range f.Forecast {
			p.Speed = float64(generation)
		}
		all = append(all, f)
	}
	return all
}

// readGeneration requests the layer or a part of it. It returns the generation that all streets
// belong to, or an error if they differ or their number is not the given one.
func readGeneration(t *testing.T, connect func() (net.Conn, error), query, encoding string, streets int) (int, error) {
	conn, err := connect()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %s\r\nConnection: close\r\n\r\n", Path+query, encoding)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	packed, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var layer pb.StreetForecastResponse
	if err := proto.Unmarshal(unpack(t, resp.Header.Get("Content-Encoding"), packed), &layer); err != nil {
		return 0, err
	}
	if len(layer.StreetForecast) != streets {
		return 0, fmt.Errorf("got %d streets, want %d", len(layer.StreetForecast), streets)
	}
	generation := layer.StreetForecast[0].Forecast[0].Speed
	for _, s := range layer.StreetForecast {
		for _, p := range s.Forecast {
			if p.Speed != generation {
				return 0, fmt.Errorf("got generations %v and %v in one layer", generation, p.Speed)
			}
		}
	}
	return int(generation), nil
}

func serveInMemory(t *testing.T, l *Layer) (connect func() (net.Conn, error)) {
	listener := fasthttputil.NewInmemoryListener()
	utc := client("UTC")
	server := &fasthttp.Server{MaxIdleWorkerDuration: 10 * time.Millisecond, Handler: func(ctx *fasthttp.RequestCtx) {
		if _, err := l.Handle(utc, ctx); err != nil {
			ctx.Error(err.Error(), 500)
		}
	}}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown()
		_ = listener.Close()
		<-done
	})
	return listener.Dial
}

// TestHead checks that a response to HEAD has the headers of the response to GET and no body, for
// layers of different sizes.
func TestHead(t *testing.T) {
	f := func(streets int, encoding string) {
		t.Helper()
		connect := serveInMemory(t, served(t, streets))
		conn, err := connect()
		require.NoError(t, err)
		defer conn.Close()
		reader := bufio.NewReader(conn)
		do := func(method string) (*http.Response, []byte) {
			fmt.Fprintf(conn, "%s %s?horizon=15 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %s\r\n\r\n", method, Path, encoding)
			resp, err := http.ReadResponse(reader, &http.Request{Method: method})
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp, body
		}
		for range 2 { // on the same connection
			head, headBody := do("HEAD")
			got, body := do("GET")
			require.Empty(t, headBody)
			require.EqualValues(t, len(body), got.ContentLength)
			unpack(t, encoding, body)
			for _, name := range []string{"Date", "Forecast-Age"} { // a second may pass
				head.Header.Del(name)
				got.Header.Del(name)
			}
			require.Equal(t, got.Header, head.Header)
			require.Equal(t, got.ContentLength, head.ContentLength)
		}
	}
	for _, streets := range []int{0, 100, 8000} {
		f(streets, "gzip")
		f(streets, "identity")
	}
}
