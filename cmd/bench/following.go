package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"time"

	"trafficd/cmd/internal/must"
	"trafficd/sinks/layers"
)

const (
	followers  = 2000
	followTime = 30 * time.Second // measured, and how long a request waits at most
)

// layerFollowing measures how many clients the daemon keeps up to date with one processor while the
// layer does not change, and how many nginx does. The daemon's clients wait for changes, as
// contract 2 describes, and receive one within milliseconds. Those of nginx send a conditional
// request every second.
func (o options) layerFollowing(ctx context.Context) {
	d := newDaemon(o.daemon, []string{"A"}, fmt.Sprintf("layers.max_waiting=%d", followers))
	defer d.stop()
	d.startWith(ctx, o.network(ctx, 300, 5, quarter()))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: followers}}
	header, body, err := server{url: "http://" + d.API + layers.Path}.request(ctx)
	must.Do(err)
	since := "http://" + d.API + layers.Path + "?since=" + url.QueryEscape(header.Get("Etag"))
	errs := make(chan error, followers)
	stop := inBackground(ctx, followers, func(ctx context.Context, i int) {
		wait := 1 + i*int(followTime/time.Second)/followers // spreads the requests
		for ctx.Err() == nil {
			_, _, err := request(ctx, client, http.MethodGet, since, nil, http.StatusOK,
				"Authorization", "apiKey "+benchKey, "Prefer", fmt.Sprintf("wait=%d", wait))
			if err != nil && ctx.Err() == nil {
				errs <- err
				return
			}
			wait = int(followTime / time.Second)
		}
	})
	defer stop()
	pause(ctx, 5*time.Second) // all of them are connected
	before := d.cpu()
	pause(ctx, followTime)
	used := d.cpu() - before
	stop()
	client.CloseIdleConnections()
	select {
	case err := <-errs:
		must.Do(err)
	default:
	}
	following := followers * followTime.Seconds() / used.Seconds()
	o.line("layer_following_clients", following, "clients per CPU")
	if _, err := exec.LookPath("nginx"); err != nil {
		return // layerServing reports it
	}
	var polls []float64
	for range layerRounds {
		n := startNginx(ctx, fileKeptOpen, body)
		polls = append(polls, server{url: "http://" + n.API + "/layer", conditional: true}.load(ctx))
		n.stop()
	}
	o.line("layer_following_over_nginx_polls", following/median(polls), "ratio")
}
