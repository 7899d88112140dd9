package main

import (
	"bufio"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/sources/ingest"
)

//go:embed telegraf.conf
var telegrafConf string

// peer is the daemon or a program that is compared with it.
type peer struct {
	name  string
	omits string // features of trafficd that it lacks
	*daemon
	body
	batches int // number of batches per connection and round
	stored  int // number of items that it must have written so far
}

// peers sends the synthetic batch over two connections to the daemon, to plain and to Telegraf, in
// turn.
func (o options) peers(ctx context.Context) {
	b := synthetic()
	ours := start(ctx, o.daemon, b.detectors)
	defer ours.stop()
	plain := startPeer(ctx, must.Get(os.Executable()), func(d *daemon) []string {
		registry := filepath.Join(d.Dir, "detectors")
		must.Do(os.WriteFile(registry, []byte(strings.Join(b.detectors, "\n")), 0o600))
		return []string{"plain", d.API, registry, d.output()}
	})
	defer plain.stop()
	telegraf := startPeer(ctx, o.telegraf, func(d *daemon) []string {
		conf := filepath.Join(d.Dir, "telegraf.conf")
		must.Do(os.WriteFile(conf, fmt.Appendf(nil, telegrafConf, d.API, d.output()), 0o600))
		return []string{"--config", conf}
	})
	defer telegraf.stop()
	unchecked := b
	unchecked.wantResponse = ""
	few := o.batches/10 + 1
	list := []peer{
		{"trafficd", "nothing", ours, b, o.batches, 0},
		{"plain", "fsync, rejections per item, duplicates, limits, the member quality, and strict rules for times and numbers", plain, b, few, 0},
		{
			"telegraf", "fsync, results per item, the registry and all rules; it responds before it writes, so a crash loses " +
				"buffered items", telegraf, unchecked, few, 0,
		},
	}
	perS, cpu := make([][]float64, len(list)), make([][]float64, len(list))
	var ratios []float64
	for range o.rounds {
		for i, p := range list {
			before, began := p.cpu(), time.Now()
			p.load(p.body, 2, p.batches)
			if p.name != "trafficd" {
				list[i].stored += 2 * p.batches * p.items
				p.awaitLines(ctx, list[i].stored)
			}
			perS[i] = append(perS[i], float64(2*p.batches*p.items)/time.Since(began).Seconds())
			cpu[i] = append(cpu[i], milliseconds(p.cpu()-before)/float64(2*p.batches))
		}
		ratios = append(ratios, perS[0][len(ratios)]/perS[2][len(ratios)])
	}
	for i, p := range list {
		o.line("peers_items_per_s_"+p.name, median(perS[i]), "items/s")
		o.line("peers_cpu_ms_"+p.name, median(cpu[i]), "ms")
		o.line("peers_rss_mb_"+p.name, p.peakMB(), "MB")
		fmt.Fprintf(o.notes, "%s omits: %s\n", p.name, p.omits)
	}
	o.line("peers_items_per_s_over_telegraf", median(ratios), "ratio")
}

// startPeer starts a program in a new directory and waits until it accepts connections. configure
// returns its arguments, which must make it listen at d.API.
func startPeer(ctx context.Context, program string, configure func(*daemon) []string) *daemon {
	program = must.Get(filepath.Abs(must.Get(exec.LookPath(program)))) // it runs in a different directory
	d := &daemon{launch.Daemon{Binary: program, Dir: tempDir(), API: must.Get(launch.FreeAddress())}}
	d.Args = configure(d)
	must.Do(d.Start())
	err := launch.Eventually(ctx, 30*time.Second, func() error {
		c, err := d.dial()
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s does not accept connections: %w: %s", program, err, d.LogTail())
		d.stop()
		must.Do(err)
	}
	return d
}

func (d *daemon) output() string { return filepath.Join(d.Dir, "output") }

// awaitLines waits until the output has the given number of lines, one for each item.
func (d *daemon) awaitLines(ctx context.Context, lines int) {
	f := must.Get(os.Open(d.output()))
	defer f.Close()
	in, n := bufio.NewReader(f), 0
	must.Do(launch.Eventually(ctx, time.Minute, func() error {
		for {
			if _, err := in.ReadSlice('\n'); err != nil {
				break // the end of the file so far; the rest of an incomplete line is read next time
			}
			n++
		}
		if n != lines {
			return fmt.Errorf("%d lines were written, want %d", n, lines)
		}
		return nil
	}))
}

// plain is an ingestion server with as little code as possible: it decodes batches into maps with
// encoding/json, checks the items approximately, and appends them to a file as JSON lines.
func plain(address, registry, output string) (err error) {
	defer must.Return(&err)
	known := map[string]bool{}
	for code := range strings.Lines(string(must.Get(os.ReadFile(registry)))) {
		known[strings.TrimSpace(code)] = true
	}
	f := must.Get(os.Create(output))
	var mu sync.Mutex
	http.HandleFunc("POST "+ingest.Path, func(w http.ResponseWriter, r *http.Request) {
		var batch struct {
			Measurements []map[string]any `json:"measurements"`
		}
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			err = json.NewDecoder(z).Decode(&batch)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		accepted := batch.Measurements[:0]
		for _, m := range batch.Measurements {
			code, _ := m["detectorCode"].(string)
			kind, _ := m["measureTypeCode"].(string)
			from, _ := m["timestampFrom"].(string)
			to, _ := m["timestampTo"].(string)
			_, isNumber := m["value"].(float64)
			start, err1 := time.Parse(time.RFC3339, from)
			end, err2 := time.Parse(time.RFC3339, to)
			if known[code] && kind != "" && isNumber && errors.Join(err1, err2) == nil && !end.Before(start) {
				accepted = append(accepted, m)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		out := bufio.NewWriter(f)
		lines := json.NewEncoder(out)
		for _, m := range accepted {
			err = errors.Join(err, lines.Encode(m))
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusMultiStatus)
		fmt.Fprintf(w, `{"accepted":%d,"rejected":%d}`, len(accepted), len(batch.Measurements)-len(accepted))
	})
	return http.Serve(must.Get(net.Listen("tcp", address)), nil)
}
