package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	servingRounds  = 11
	servingTime    = "1s" // duration of one run of wrk
	servingClients = "8"  // connections of wrk
)

// layerServing compares the daemon serving a layer with nginx serving the same bytes from a file.
// Each uses one CPU, and wrk measures them in turn.
func (o options) layerServing(ctx context.Context) {
	for _, program := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(o.notes, "skipping the comparison with nginx: %s is not installed (apt-get install nginx-light wrk)\n", program)
			return
		}
	}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1k", 1000}, {"100k", 100_000}, {"10m", 10_000_000}} {
		o.againstNginx(ctx, size.name, size.bytes)
	}
}

func (o options) againstNginx(ctx context.Context, name string, size int) {
	const perStreet = 340 // approximate bytes of five periods
	d := o.layerDaemon(ctx, network(max(1, size/perStreet), 5, quarter()), "GOMAXPROCS=1")
	defer d.stop()
	ours := server{url: "http://" + d.API + layers.Path}
	_, body, err := ours.request(ctx)
	must.Do(err)
	o.compare(ctx, "layer_"+name, ours, body)
	if name == "100k" {
		ours.conditional = true
		o.compare(ctx, "layer_304", ours, body)
	}
}

// compare prints the daemon's requests per second, and their ratios to those of nginx as packaged
// and of an nginx that keeps the file open; for 304, also to those of bare. Each round starts new
// peers in new directories, because an nginx that starts slow or fast remains so.
func (o options) compare(ctx context.Context, name string, ours server, body []byte) {
	nginx := func(settings string) float64 {
		d := startNginx(ctx, settings, body)
		defer d.stop()
		return server{url: "http://" + d.API + "/layer", conditional: ours.conditional}.load(ctx)
	}
	var rates, overPackaged, overTuned, overBare []float64
	for range servingRounds {
		own, packaged, tuned := ours.load(ctx), nginx(""), nginx(fileKeptOpen)
		rates, overPackaged, overTuned = append(rates, own), append(overPackaged, own/packaged), append(overTuned, own/tuned)
		if ours.conditional {
			d := startPeer(ctx, must.Get(os.Executable()), func(d *daemon) []string { return []string{"bare", d.API} })
			overBare = append(overBare, own/server{url: "http://" + d.API}.load(ctx))
			d.stop()
		}
	}
	o.line(name+"_requests_per_s", median(rates), "1/s")
	o.line(name+"_over_nginx", median(overPackaged), "ratio")
	o.line(name+"_over_nginx_tuned", median(overTuned), "ratio")
	o.line(name+"_over_nginx_tuned_spread", slices.Max(overTuned)-slices.Min(overTuned), "ratio")
	if ours.conditional {
		o.line(name+"_over_bare", median(overBare), "ratio")
	}
}

type server struct {
	url         string
	conditional bool // whether load sends If-None-Match with the current ETag
}

func (s server) request(ctx context.Context) (http.Header, []byte, error) {
	return request(ctx, http.DefaultClient, http.MethodGet, s.url, nil, http.StatusOK,
		"Authorization", "apiKey "+benchKey, "Accept-Encoding", "identity")
}

// load returns the number of requests per second that wrk measures.
func (s server) load(ctx context.Context) (rate float64) {
	args := []string{"-t", "1", "-c", servingClients, "-d", servingTime, "--timeout", "30s", "-H", "Authorization: apiKey " + benchKey}
	if s.conditional {
		header, _, err := s.request(ctx) // a period of the layer may have ended
		must.Do(err)
		args = append(args, "-H", "If-None-Match: "+header.Get("Etag"))
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, s.url)...).CombinedOutput()
	if err != nil {
		must.Do(fmt.Errorf("cannot run wrk: %w: %s", err, out))
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "Non-2xx") || strings.Contains(line, "Socket errors") {
			must.Do(fmt.Errorf("wrk reported for %s: %s", s.url, strings.TrimSpace(line)))
		}
		if text, ok := strings.CutPrefix(line, "Requests/sec:"); ok {
			rate = must.Get(strconv.ParseFloat(strings.TrimSpace(text), 64))
		}
	}
	return rate
}

// nginxConf has the settings of Debian's package, with two exceptions: there is no access log,
// which the daemon does not write either, and connections are not closed after a thousand requests.
const nginxConf = `daemon off;
worker_processes 1;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
  sendfile on;
  tcp_nopush on;
  types_hash_max_size 2048;
  gzip on;
  access_log off;
  keepalive_requests 1000000000;
  default_type application/x-protobuf;
  %[3]s
  server {
    listen %[2]s;
    location / { root %[1]s; }
  }
}
`

// fileKeptOpen avoids opening the file for each request.
const fileKeptOpen = "open_file_cache max=100; open_file_cache_valid 60s;"

// startNginx starts an nginx that serves the body from a file at /layer.
func startNginx(ctx context.Context, settings string, body []byte) *daemon {
	d := startPeer(ctx, "nginx", func(d *daemon) []string {
		config := filepath.Join(d.Dir, "nginx.conf")
		must.Do(os.WriteFile(filepath.Join(d.Dir, "layer"), body, 0o600))
		must.Do(os.WriteFile(config, fmt.Appendf(nil, nginxConf, d.Dir, d.API, settings), 0o600))
		d.OnDeath = syscall.SIGTERM // on SIGTERM, nginx also stops its worker process
		return []string{"-c", config, "-e", filepath.Join(d.Dir, "error.log")}
	})
	_, sent, err := server{url: "http://" + d.API + "/layer"}.request(ctx)
	if err == nil && !bytes.Equal(sent, body) {
		err = errors.New("unexpected body")
	}
	if err != nil {
		err = fmt.Errorf("nginx does not serve the layer: %w: %s", err, d.LogTail())
		d.stop()
		must.Do(err)
	}
	return d
}

// bare answers each read from a connection with a 304 of the same size as the daemon's, without
// parsing the request. No server built on Go's net package can make fewer system calls. Like the
// daemon in this comparison, it uses one CPU.
func bare(address string) (err error) {
	defer must.Return(&err)
	runtime.GOMAXPROCS(1)
	l := must.Get(net.Listen("tcp", address))
	response := fmt.Appendf(nil, "HTTP/1.1 304 Not Modified\r\nETag: %0318d\r\n\r\n", 0)
	for {
		c := must.Get(l.Accept())
		go func() {
			defer c.Close()
			request := make([]byte, 4096)
			var err error
			for err == nil {
				if _, err = c.Read(request); err == nil {
					_, err = c.Write(response)
				}
			}
		}()
	}
}

func (o options) layerDaemon(ctx context.Context, all []*pb.StreetForecast, env ...string) *daemon {
	d := newDaemon(o.daemon, []string{"A"})
	d.Env = env
	d.startWith(ctx, all)
	return d
}

// startWith starts the daemon with a layer of the given forecasts.
func (d *daemon) startWith(ctx context.Context, all []*pb.StreetForecast) {
	d.Set("forecasts.feed=file", "forecasts.file.path="+d.feed())
	d.publish(all)
	d.start(ctx)
	d.awaitServed(ctx, 0)
}

func (d *daemon) feed() string { return filepath.Join(d.Dir, "forecasts.pb") }

// publish replaces the forecasts file.
func (d *daemon) publish(all []*pb.StreetForecast) {
	text := must.Get(proto.Marshal(&pb.StreetForecastResponse{StreetForecast: all}))
	must.Do(os.WriteFile(d.feed()+".new", text, 0o600))
	must.Do(os.Rename(d.feed()+".new", d.feed()))
}

// awaitServed waits until the daemon has built the layer more often than the given number of times.
func (d *daemon) awaitServed(ctx context.Context, builds float64) {
	must.Do(launch.Eventually(ctx, time.Minute, func() error {
		n, err := d.metric(ctx, "trafficd_layers_builds_total")
		if err == nil && n <= builds {
			err = errors.New("the daemon has not built the layer")
		}
		return err
	}))
}
