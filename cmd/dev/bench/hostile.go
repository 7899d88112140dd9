package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/schemas/contract"
	"trafficd/sinks/layers"
	"trafficd/sources/ingest"
)

// attack is one of the attacks of bench hostile.
type attack struct {
	name string // also the name of the attacker's key
	run  func(ctx context.Context)
	edge *edge // the proxy through which all clients send; nil = they send to the daemon
}

// hostile starts two replicas on loopback and attacks the first one, or both through each of the
// shipped proxies, while two well-behaved integrators send batches. It prints a line per attack.
// The duration of each attack is limited.
func (o options) hostile(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	dir := tempDir()
	defer os.RemoveAll(dir)
	fmt.Fprintln(o.notes, "hostile: starting ClickHouse and the daemons")
	stores := must.Get(launch.StartStores(ctx, launch.Options{Dir: filepath.Join(dir, "stores"), Only: "clickhouse", Stderr: io.Discard}))
	defer func() { _ = stores.Close() }()
	t, second := &target{detectors: synthetic().detectors}, &daemon{}
	attacks := []attack{
		{name: "months", run: t.months},
		{name: "heads", run: t.heads},
		{name: "idempotency", run: t.idempotency},
		{name: "silent", run: t.silent},
		{name: "readers", run: t.readers},
		{name: "items", run: t.items},
		{name: "bombs", run: t.bombs},
		{name: "operators", run: t.operators},
	}
	for _, e := range edges {
		name, _, _ := strings.Cut(e.file, ".")
		attacks = append(attacks, attack{"refused-" + name, t.refused, &e}, attack{"poller-" + name, t.poller, &e})
	}
	if o.attack != "" {
		attacks = slices.DeleteFunc(attacks, func(a attack) bool { return a.name != o.attack })
		if len(attacks) == 0 {
			must.Do(fmt.Errorf("unknown attack %q: bench --help lists the attacks", o.attack))
		}
	}
	keys := []launch.Key{
		{Name: "persistent", Key: "persistent", Instance: "city", Rights: "ingest"},
		{Name: "reconnecting", Key: "reconnecting", Instance: "city", Rights: "ingest"},
	}
	for _, a := range attacks {
		keys = append(keys, launch.Key{Name: a.name, Key: a.name, Instance: "city", Rights: "ingest, forecast", ItemsPerSecond: 100_000})
	}
	for i, d := range []*daemon{&t.daemon, second} {
		d.Binary, d.Dir = o.daemon, filepath.Join(dir, fmt.Sprint("replica-", i+1))
		must.Do(os.Mkdir(d.Dir, 0o755))
		must.Do(d.Configure("city", "persistent", "ingest", t.detectors, "log.level=error", "journal.min_free_bytes=0", "kafka.enabled=false",
			"clickhouse.addresses="+stores.ClickHouse.TCP,
			"forecasts.feed=file", "forecasts.file.path="+d.feed(), // which does not exist, so there is no layer
			"pipeline.idempotency.max_bytes=16MiB")) // fills within seconds; one client may use half of it
		must.Do(d.SetKeys(keys...))
		d.start(ctx)
		defer func() { _ = d.Stop(35 * time.Second) }()
	}
	t.persistent.Transport = &http.Transport{}
	t.reconnecting.Transport = &http.Transport{DisableKeepAlives: true}

	var failed []string
	for _, a := range attacks {
		stop, missing := t.enter(ctx, a.edge, t.Daemon, second.Daemon)
		if missing != nil {
			fmt.Fprintf(o.lines, "hostile: %s not run: %v\n", a.name, missing)
			continue
		}
		t.key = a.name
		before := t.integrate(ctx, 3*time.Second, nil)
		during := t.integrate(ctx, 12*time.Second, a.run)
		stop()
		if t.Exited() || second.Exited() {
			must.Do(fmt.Errorf("the daemon exited during the attack %s: %s", a.name, t.LogTail()+second.LogTail()))
		}
		fmt.Fprintf(o.lines, "hostile: %s success %.1f p99 %.1f %.1f rss %.0f status %s\n",
			a.name, during.success, p99(before.took), p99(during.took), t.peakMB(), during.attacker)
		if during.success < 99 || p99(during.took) > max(3*p99(before.took), 50) {
			failed = append(failed, a.name)
		}
		for _, why := range during.failures {
			fmt.Fprintf(o.notes, "hostile: %s: an integrator failed: %s\n", a.name, why)
		}
	}
	must.Do(context.Cause(ctx))
	if len(failed) > 0 {
		must.Do(fmt.Errorf("these attacks degraded the integrators: %s", strings.Join(failed, ", ")))
	}
}

// target is the attacked daemon or pair of replicas.
type target struct {
	daemon                          // the first replica
	entry                    string // host:port to which the integrators send: the daemon's, or an edge's
	detectors                []string
	persistent, reconnecting http.Client  // of the integrators
	sent                     atomic.Int64 // number of the integrators' batches
	key                      string       // the attacker's API key

	mu       sync.Mutex
	attacker map[string]int // number of the attacker's requests by result
}

// outcome is what the integrators observed during a call to integrate.
type outcome struct {
	success  float64   // percentage of the requests that succeeded, of the integrator with the lower one
	took     []float64 // latencies in milliseconds
	failures []string  // the first three errors
	attacker string    // the attacker's results, such as 429×12,503×1
}

// integrate makes each integrator send a batch of 100 items every 50 ms for d. Unless attack is
// nil, it runs the attack at the same time.
func (t *target) integrate(ctx context.Context, d time.Duration, attack func(context.Context)) (o outcome) {
	t.attacker, o.success = map[string]int{}, 100
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	if attack != nil {
		all.Go(func() { attack(ctx) })
	}
	var mu sync.Mutex
	for name, client := range map[string]*http.Client{"persistent": &t.persistent, "reconnecting": &t.reconnecting} {
		all.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			requests, succeeded := 0, 0
			for ctx.Err() == nil {
				<-tick.C
				n := int(t.sent.Add(1))
				items := make([]string, 100)
				for i := range items {
					items[i] = item(t.detectors[(n*100+i)%len(t.detectors)], time.Now().AddDate(0, 0, -1))
				}
				began := time.Now()
				err := t.send(client, name, fmt.Sprintf("%s-%d", name, n), zip(items))
				mu.Lock()
				requests++
				o.took = append(o.took, milliseconds(time.Since(began)))
				if err == nil {
					succeeded++
				} else if len(o.failures) < 3 {
					o.failures = append(o.failures, err.Error())
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			o.success = min(o.success, 100*float64(succeeded)/float64(max(1, requests)))
		})
	}
	all.Wait()
	for _, status := range slices.Sorted(maps.Keys(t.attacker)) {
		o.attacker += fmt.Sprintf("%s×%d,", strings.ReplaceAll(status, " ", "_"), t.attacker[status])
	}
	o.attacker = strings.TrimSuffix(o.attacker, ",")
	return o
}

// send posts a batch as an integrator and returns an error unless the status is 207.
func (t *target) send(client *http.Client, key, idempotencyKey string, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _, err := request(ctx, client, http.MethodPost, "http://"+t.entry+ingest.Path, body, http.StatusMultiStatus,
		"Authorization", "apiKey "+key, "Idempotency-Key", idempotencyKey)
	return err
}

func item(detector string, at time.Time) string {
	at = at.Truncate(time.Second)
	m := contract.Measurement{DetectorCode: detector, MeasureTypeCode: "speed", TimestampFrom: at, Value: "50"}
	m.TimestampTo = at.Add(time.Minute)
	return string(m.AppendJSON(nil))
}

func zip(items []string) []byte { return newBody("", contract.Batch(items...), nil).zipped }

func (t *target) count(result string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attacker[result]++
}

// each calls do repeatedly from n goroutines until ctx is done, but at most limit times in total.
// It numbers the calls from 1.
func each(ctx context.Context, n, limit int, do func(i int)) {
	var all sync.WaitGroup
	var calls atomic.Int64
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(calls.Add(1))
				if i > limit {
					return
				}
				do(i)
			}
		})
	}
	all.Wait()
}

// post sends a request on a new connection and counts its result. It reads the response with read
// or, if read is nil, as fast as possible. If body is nil, it sends only the header.
func (t *target) post(ctx context.Context, body []byte, headers string, read func(io.Reader) error) {
	resp, stop, err := t.open(ctx, head(t.key, cmp.Or(len(body), 1000), headers), body)
	if err != nil {
		t.cutOff(ctx)
		return
	}
	defer stop()
	defer resp.Body.Close()
	if read == nil {
		read = func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	}
	if err := read(resp.Body); err != nil {
		t.cutOff(ctx)
		return
	}
	t.count(fmt.Sprint(resp.StatusCode))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		time.Sleep(50 * time.Millisecond) // without a pause, the attack would mainly use up this machine's CPU
	}
}

// cutOff counts a connection that the daemon refused or closed, or that was still open when the
// attack ended.
func (t *target) cutOff(ctx context.Context) {
	if end, _ := ctx.Deadline(); time.Now().Before(end) {
		t.count("cut off")
	} else {
		t.count("open at the end")
	}
}

// months sends batches whose items are spread over 680 months.
func (t *target) months(ctx context.Context) {
	items := make([]string, 2000)
	for i := range items {
		items[i] = item(t.detectors[i], time.Date(1970, time.Month(1+i%680), 1, 0, 0, 0, 0, time.UTC))
	}
	body := zip(items)
	each(ctx, 1, 3, func(int) { t.post(ctx, body, "", nil) })
	<-ctx.Done()
}

// heads sends request headers without the bodies that they announce.
func (t *target) heads(ctx context.Context) {
	each(ctx, 600, 1<<20, func(int) { t.post(ctx, nil, "", nil) })
}

// idempotency fills the idempotency store with large responses.
func (t *target) idempotency(ctx context.Context) {
	items := make([]string, 2000)
	for i := range items {
		items[i] = item(fmt.Sprintf("%064x", sha256.Sum256([]byte{byte(i), byte(i >> 8)})), time.Now())
	}
	body := zip(items)
	each(ctx, 4, 5000, func(i int) {
		t.post(ctx, body, fmt.Sprintf("Accept-Encoding: gzip\r\nIdempotency-Key: attack-%d\r\n", i), nil)
	})
}

// silent opens more connections than the daemon accepts and sends nothing.
func (t *target) silent(ctx context.Context) {
	each(ctx, 4400, 1<<16, func(i int) {
		// Spread the connections over time, because a flood would mainly use up this machine's CPU.
		pause := rand.N(3 * time.Second)
		if i > 4400 {
			pause = 5*time.Second + rand.N(5*time.Second)
		}
		if !launch.Sleep(ctx, pause) {
			return
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.API)
		if err != nil {
			t.cutOff(ctx)
			return
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetLinger(0) // avoids TIME_WAIT: there are only 28,000 ephemeral ports
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.count("response")
		} else {
			t.cutOff(ctx)
		}
	})
}

// readers provokes large responses and reads them at 100 bytes per second.
func (t *target) readers(ctx context.Context) {
	body := zip(slices.Repeat([]string{"1"}, 14_000))
	each(ctx, 64, 1<<16, func(int) {
		t.post(ctx, body, "", func(r io.Reader) error {
			for {
				launch.Sleep(ctx, time.Second)
				if _, err := io.CopyN(io.Discard, r, 100); err != nil {
					if err == io.EOF {
						return nil
					}
					return err
				}
			}
		})
	})
}

// items sends bodies that exceed the hard limit of items.
func (t *target) items(ctx context.Context) {
	body := zip(slices.Repeat([]string{"{}"}, 140_001))
	each(ctx, 32, 1<<16, func(int) { t.post(ctx, body, "", nil) })
}

// bombs sends small bodies that decompress to large ones.
func (t *target) bombs(ctx context.Context) {
	var bodies [][]byte
	for _, b := range bombs {
		b.times /= 4
		bodies = append(bodies, b.gzip())
	}
	each(ctx, 32, 1<<16, func(i int) { t.post(ctx, bodies[i%len(bodies)], "", nil) })
}

// operators sends request headers without the announced bodies to the operators' port. In the
// meantime, the daemon may open only 1,500 files.
func (t *target) operators(ctx context.Context) {
	limit := func(n string) {
		if err := exec.Command("prlimit", "--pid", fmt.Sprint(t.PID()), "--nofile="+n+":").Run(); err != nil {
			t.count("cannot run prlimit")
		}
	}
	files := must.Get(must.Get(procfs.NewProc(t.PID())).Limits()).OpenFiles
	limit("1500")
	defer limit(fmt.Sprint(files))
	ops := &daemon{launch.Daemon{API: t.Ops}}
	header := "POST /status HTTP/1.1\r\nHost: " + t.Ops + "\r\nContent-Length: 1000\r\n\r\n"
	each(ctx, 1600, 1<<16, func(int) {
		if !launch.Sleep(ctx, rand.N(2*time.Second)) { // as in silent
			return
		}
		resp, stop, err := ops.open(ctx, header, nil)
		if err != nil {
			t.cutOff(ctx)
			return
		}
		defer stop()
		defer resp.Body.Close()
		t.count(fmt.Sprint(resp.StatusCode))
		launch.Sleep(ctx, time.Second)
	})
}

// refused posts large bodies without a valid key. The keys differ, so that each replica gets some.
func (t *target) refused(ctx context.Context) {
	body := bytes.Repeat([]byte("x"), 4<<20)
	each(ctx, 2, 1<<16, func(i int) { t.ask(ctx, http.MethodPost, ingest.Path, fmt.Sprint("unknown-", i), body) })
}

// poller requests forecasts that are not there yet.
func (t *target) poller(ctx context.Context) {
	each(ctx, 1, 1<<16, func(int) {
		t.ask(ctx, http.MethodGet, layers.Path, t.key, nil)
		launch.Sleep(ctx, 25*time.Millisecond)
	})
}

// ask sends a request as an ordinary HTTP client and counts its result.
func (t *target) ask(ctx context.Context, method, path, key string, body []byte) {
	r, err := launch.Request(ctx, http.DefaultClient, method, "http://"+t.entry+path, body, "Authorization", "apiKey "+key)
	if err != nil {
		t.cutOff(ctx)
		return
	}
	t.count(fmt.Sprint(r.Status))
}
