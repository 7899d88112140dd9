package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/sinks/layers"
)

const profileTime = 15 * time.Second // duration of each profile

// profile writes CPU profiles of daemons under three kinds of load: ingestion, delivery and serving
// a layer. `make profile` merges them into cmd/trafficd/trafficd.pgo.
func (o options) profile(ctx context.Context) {
	must.Do(os.MkdirAll(o.output, 0o700))
	for i, b := range append([]body{synthetic()}, o.bodies...) {
		d := start(ctx, o.daemon, b.detectors)
		d.profile(ctx, o.path(fmt.Sprintf("ingest%d", i)), func() { d.load(b, 1, o.batches) })
	}

	stores := must.Get(launch.StartStores(ctx, launch.Options{Topics: map[string]int{deliverTopic: deliverPartitions}, Stderr: o.notes}))
	defer func() { _ = stores.Close() }()
	b := synthetic()
	d := o.delivering(ctx, b, stores)
	d.profile(ctx, o.path("deliver"), func() { d.deliverAll(ctx, b, stores.ClickHouse) })

	l := o.layerDaemon(ctx, network(300, 5, quarter()))
	layer := server{url: "http://" + l.API + layers.Path}
	l.profile(ctx, o.path("layer"), func() {
		layer.conditional = !layer.conditional
		layer.load(ctx)
	})
}

func (o options) path(name string) string { return filepath.Join(o.output, name+".pprof") }

// profile calls load repeatedly, writes a CPU profile of that time to path, and stops the daemon.
func (d *daemon) profile(ctx context.Context, path string, load func()) {
	defer d.stop()
	var profile []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		var status int
		status, profile, err = d.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileTime/time.Second))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %.300s", status, profile)
		}
	}()
	for running := true; running; {
		load()
		select {
		case <-done:
			running = false
		default:
		}
	}
	must.Do(err)
	must.Do(os.WriteFile(path, profile, 0o600))
}
