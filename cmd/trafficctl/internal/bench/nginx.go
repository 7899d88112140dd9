package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	servingRounds  = 11
	servingTime    = "1s" // of a run of the load tool
	servingClients = "8"
)

// layerServing compares GET of a layer with nginx sending the same bytes from a file: one processor for
// each, one load tool, turn by turn.
func (o Options) layerServing(ctx context.Context) error {
	for _, program := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(o.Notes, "nothing is compared with nginx: there is no %s (apt-get install nginx-light wrk)\n", program)
			return nil
		}
	}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1k", 1000}, {"100k", 100_000}, {"10m", 10_000_000}} {
		if err := o.againstNginx(ctx, size.name, size.bytes); err != nil {
			return fmt.Errorf("cannot compare a layer of %s with nginx: %w", size.name, err)
		}
	}
	return nil
}

// againstNginx compares with nginx as it is packaged and, by a second name, with
// one that also keeps the file open.
func (o Options) againstNginx(ctx context.Context, name string, size int) error {
	d, err := layerDaemon(ctx, o.Daemon, size, "GOMAXPROCS=1")
	if err != nil {
		return err
	}
	defer d.stop()
	ours := server{url: "http://" + d.api + layers.Path, key: benchKey}
	body, err := ours.get()
	if err != nil {
		return err
	}
	others := rivals{dir: d.dir, body: body}
	if err := o.compare(ctx, "layer_"+name, ours, others); err != nil || name != "100k" {
		return err
	}
	others.conditional = true
	return o.compare(ctx, "layer_304", ours.unchanged(), others)
}

// rivals are the two nginx that send a body.
type rivals struct {
	dir         string
	body        []byte
	conditional bool
}

// load starts an nginx, and gives the requests per second that it answers. One goes on for seconds as
// fast or as slowly as it began, whatever that is due to; so each round has a new one.
func (r rivals) load(ctx context.Context, settings string) (float64, error) {
	dir, err := os.MkdirTemp(r.dir, "nginx")
	if err != nil {
		return 0, err
	}
	s, stop, err := startNginx(ctx, dir, settings, r.body)
	if err != nil {
		return 0, err
	}
	defer stop()
	s.conditional = r.conditional
	return s.load(ctx)
}

// compare prints our requests per second and, as the median of the rounds, what they are over
// those of the others.
func (o Options) compare(ctx context.Context, name string, ours server, others rivals) error {
	var rates, overPackaged, overTuned []float64
	for range servingRounds {
		own, err := ours.load(ctx)
		if err != nil {
			return err
		}
		packaged, err := others.load(ctx, "")
		if err != nil {
			return err
		}
		tuned, err := others.load(ctx, fileKeptOpen)
		if err != nil {
			return err
		}
		rates, overPackaged, overTuned = append(rates, own), append(overPackaged, own/packaged), append(overTuned, own/tuned)
	}
	o.line(name+"_requests_per_s", median(rates), "1/s")
	o.line(name+"_over_nginx", median(overPackaged), "ratio")
	o.line(name+"_over_nginx_tuned", median(overTuned), "ratio")
	return nil
}

// server is where a layer can be had.
type server struct {
	url, key    string
	etag        string // of what get gave
	conditional bool   // ask for what has another tag only
}

func (s *server) get() ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+s.key)
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.200s", s.url, resp.Status, body)
	}
	s.etag = resp.Header.Get("Etag")
	return body, err
}

// unchanged asks for what the client has already.
func (s server) unchanged() server {
	s.conditional = true
	return s
}

// load gives the requests per second that the load tool gets answered.
func (s server) load(ctx context.Context) (float64, error) {
	args := []string{"-t", "1", "-c", servingClients, "-d", servingTime, "--timeout", "30s", "-H", "Authorization: apiKey " + s.key}
	if s.conditional {
		args = append(args, "-H", "If-None-Match: "+s.etag)
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, s.url)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	rate := 0.0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "Non-2xx") || strings.Contains(line, "Socket errors") {
			return 0, fmt.Errorf("wrk says about %s: %s", s.url, strings.TrimSpace(line))
		}
		if text, ok := strings.CutPrefix(line, "Requests/sec:"); ok {
			rate, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return rate, err
}

// nginxConf are the settings that Debian's package of nginx comes with, but that it
// writes no log of requests, as the daemon writes none, and closes no connection after a thousand.
const nginxConf = `daemon off;
worker_processes 1;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 768; }
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

// fileKeptOpen spares nginx opening the file for each request.
const fileKeptOpen = "open_file_cache max=100; open_file_cache_valid 60s;"

// startNginx serves the body from a file in the folder dir.
func startNginx(ctx context.Context, dir, settings string, body []byte) (s server, stop func(), err error) {
	address := freeAddress()
	err = os.WriteFile(filepath.Join(dir, "layer"), body, 0o600)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, nginxConf, dir, address, settings), 0o600))
	if err != nil {
		return s, nil, err
	}
	var says bytes.Buffer
	cmd := exec.CommandContext(ctx, "nginx", "-c", filepath.Join(dir, "nginx.conf"), "-e", filepath.Join(dir, "error.log"))
	cmd.Stdout, cmd.Stderr = &says, &says
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return s, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it was told to stop
	}
	s = server{url: "http://" + address + "/layer", key: benchKey}
	var sent []byte
	for range 100 {
		if sent, err = s.get(); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err == nil && !bytes.Equal(sent, body) {
		err = errors.New("it sends something else")
	}
	if err != nil {
		stop()
		return s, nil, fmt.Errorf("nginx does not serve the layer: %w: %s", err, says.String())
	}
	return s, stop, nil
}

// layerDaemon starts a daemon with a layer of about this size.
func layerDaemon(ctx context.Context, program string, size int, env ...string) (*daemon, error) {
	d, err := newDaemon()
	if err != nil {
		return nil, err
	}
	if err := d.feed(size); err != nil {
		return nil, err
	}
	if err := d.start(ctx, program, []string{"A"}, env...); err != nil {
		return nil, err
	}
	if err := d.served(ctx, 0); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// feed writes the file of the forecasts, and names it in the configuration.
func (d *daemon) feed(size int) error {
	const perStreet = 340 // of five periods, about
	all, err := network(max(1, size/perStreet), layerPeriods)
	if err != nil {
		return err
	}
	return d.write(all)
}

func (d *daemon) write(all []*pb.StreetForecast) error {
	path := filepath.Join(d.dir, "forecasts.pb")
	d.more = fmt.Sprintf("forecasts: {feed: file, file: {path: %q, settle: 10ms}}\n", path)
	text, err := proto.Marshal(&pb.StreetForecastResponse{StreetForecast: all})
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// served waits until the daemon has built the layer more than so many times.
func (d *daemon) served(ctx context.Context, builds float64) error {
	for range 6000 {
		n, err := d.metric("trafficd_layers_builds_total")
		if err != nil {
			return err
		}
		if n > builds {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("the daemon builds no layer within a minute")
}
