package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"trafficd/sinks/layers"
)

const (
	memoryReaders  = 8
	memoryRebuilds = 3
)

// layerMemory compares the daemon's largest resident size, while all of a layer changes and clients read
// it, with the size of all finished answers.
func (o Options) layerMemory(ctx context.Context) error {
	d, err := newDaemon()
	if err != nil {
		return err
	}
	if err := d.change(); err != nil {
		return err
	}
	if err := d.start(ctx, o.Daemon, []string{"A"}); err != nil {
		return err
	}
	defer d.stop()
	if err := d.served(ctx, 0); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for i := range memoryReaders {
		readers.Go(func() { d.read(reading, i) })
	}
	if err := d.rebuild(ctx); err != nil {
		return err
	}
	bodies, err := d.metric("trafficd_layers_body_bytes")
	if err != nil {
		return err
	}
	peak, err := d.peakMB()
	if err != nil {
		return err
	}
	o.line("layer_bodies_mb", bodies/1e6, "MB")
	o.line("layer_rss_mb", peak, "MB")
	o.line("layer_rss_over_bodies", peak/(bodies/1e6), "ratio")
	return nil
}

// rebuild has all of the layer change some times; the largest resident size counts from here on.
func (d *daemon) rebuild(ctx context.Context) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("cannot reset the daemon's largest resident size: %w", err)
	}
	for range memoryRebuilds {
		builds, err := d.metric("trafficd_layers_builds_total")
		if err != nil {
			return err
		}
		if err := d.change(); err != nil {
			return err
		}
		if err := d.served(ctx, builds); err != nil {
			return err
		}
	}
	return nil
}

// change gives every street other speeds.
func (d *daemon) change() error {
	all, err := network(layerStreets, layerPeriods)
	if err != nil {
		return err
	}
	d.changes++
	offset := float64(d.changes)
	for _, f := range all {
		for _, p := range f.Forecast {
			p.Speed += offset
		}
	}
	return d.write(all)
}

// read gets the layer over and over, a reader each in its own form.
func (d *daemon) read(ctx context.Context, reader int) {
	url := "http://" + d.api + layers.Path + []string{"", "?horizon=30"}[reader%2]
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "apiKey "+benchKey)
		req.Header.Set("Accept-Encoding", []string{"identity", "gzip", "zstd"}[reader%3])
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // it may end in the middle
			resp.Body.Close()
		}
		time.Sleep(50 * time.Millisecond) // clients on the same machine should leave something to the daemon
	}
}
