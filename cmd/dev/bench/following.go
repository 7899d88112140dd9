package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/must"
	"trafficd/sinks/layers"
)

const (
	followers  = 2000
	followTime = 30 * time.Second // length of the measurement, and maximum wait of a request
)

// layerFollowing compares the CPU time of the daemon and of nginx while the layer does not change.
// The daemon's clients wait for changes, as contract 2 describes, which they would receive within
// milliseconds. The same number of nginx's clients each send a conditional request every second.
func (o options) layerFollowing(ctx context.Context) {
	if _, err := exec.LookPath("nginx"); err != nil {
		return // layerServing reports it
	}
	d := newDaemon(o.daemon, []string{"A"}, fmt.Sprintf("layers.max_waiting=%d", followers))
	defer d.stop()
	d.startWith(ctx, o.network(ctx, 300, 5, quarter()))
	header, body, err := server{url: "http://" + d.API + layers.Path}.request(ctx)
	must.Do(err)
	since := "http://" + d.API + layers.Path + "?since=" + url.QueryEscape(header.Get("Etag"))
	waiting := follow(ctx, d.cpu, func(ctx context.Context, client *http.Client, i, n int) error {
		wait := int(followTime / time.Second)
		if n == 0 {
			wait = 1 + i*wait/followers // spreads the clients' requests over time
		}
		_, _, err := request(ctx, client, http.MethodGet, since, nil, http.StatusOK,
			"Authorization", "apiKey "+benchKey, "Prefer", fmt.Sprintf("wait=%d", wait))
		return err
	})

	n := startNginx(ctx, fileKeptOpen, body)
	defer n.stop()
	file := "http://" + n.API + "/layer"
	header, _, err = server{url: file}.request(ctx)
	must.Do(err)
	children := must.Get(os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", n.PID())))
	worker := must.Get(strconv.Atoi(strings.TrimSpace(string(children))))
	polling := follow(ctx, func() time.Duration { return cpuOf(worker) }, func(ctx context.Context, client *http.Client, _, _ int) error {
		launch.Sleep(ctx, time.Second)
		_, _, err := request(ctx, client, http.MethodGet, file, nil, http.StatusNotModified, "If-None-Match", header.Get("Etag"))
		return err
	})
	o.line("layer_following_ms_per_s", milliseconds(waiting)/followTime.Seconds(), "ms")
	o.line("layer_following_over_nginx_polls", waiting.Seconds()/polling.Seconds(), "ratio")
}

// follow returns the CPU time that a server uses in followTime while each client calls send
// repeatedly. i is the index of the client, and n that of its request.
func follow(
	ctx context.Context, cpu func() time.Duration, send func(ctx context.Context, client *http.Client, i, n int) error,
) time.Duration {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: followers}}
	defer client.CloseIdleConnections()
	errs := make([]error, followers)
	stop := inBackground(ctx, followers, func(ctx context.Context, i int) {
		launch.Sleep(ctx, time.Duration(i)*time.Millisecond) // the daemon limits the connections that have not sent a key yet
		for n := 0; errs[i] == nil && ctx.Err() == nil; n++ {
			if err := send(ctx, client, i, n); ctx.Err() == nil {
				errs[i] = err
			}
		}
	})
	defer stop()
	pause(ctx, 5*time.Second) // until all clients are connected
	before := cpu()
	pause(ctx, followTime)
	used := cpu() - before
	stop()
	for _, err := range errs {
		must.Do(err)
	}
	return used
}
