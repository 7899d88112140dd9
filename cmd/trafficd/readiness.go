package main

import (
	"fmt"
	"slices"
	"time"

	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/ops"
	"trafficd/schemas/contract"
)

// Messages about settings without a default, for the log and for readiness.
const (
	noKeys      = "no API keys: every request is answered 401; set api.keys_file or api.keys (trafficctl key new creates one)"
	noFeeds     = "no detector registry: no batch can be validated; set registry.feeds"
	noForecasts = "a key has the right forecast, but no forecasts are configured: set forecasts.feed"
)

// slow is the lag from which a delivery is reported as behind. A healthy store needs far less for a
// block, retries included.
const slow = time.Minute

// readiness asks every part. The daemon is not ready only if it refuses batches; an unreachable store
// does not count, because the journal still accepts them.
func (d *daemon) readiness() ops.Readiness {
	self := ops.Component{State: ops.OK, Detail: map[string]any{"version": version.Text()}}
	started := d.started.Load()
	if d.draining.Load() {
		self.Add(ops.NotReady, "draining")
	} else if !started {
		self.Add(ops.NotReady, "starting")
	}
	components := map[string]ops.Component{"daemon": self}
	if started { // before, there are no parts to ask
		components["journal"] = d.journalState()
		components["keys"] = d.keysState()
		components["registry"] = d.registryState()
		for _, x := range d.deliveries {
			components[x.name] = x.state()
		}
		if c, show := d.forecastState(); show {
			components["forecasts"] = c
		}
	}
	return ops.NewReadiness(components)
}

func (d *daemon) journalState() ops.Component {
	oldest, next := d.journal.Bounds()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"oldest_frame": oldest, "next_frame": next}}
	if err := d.journal.Ready(); err != nil {
		c.Add(ops.NotReady, err.Error())
	}
	return c
}

func (d *daemon) keysState() ops.Component {
	clients := d.keys.Clients()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"keys": len(clients)}}
	if len(clients) == 0 {
		c.Add(ops.NotReady, noKeys)
	}
	if err := d.keys.Err(); err != nil {
		c.Add(ops.Degraded, err.Error())
	}
	return c
}

// registryState checks that each product instance that a key may ingest for has detectors.
func (d *daemon) registryState() ops.Component {
	feeds := d.registry.Status()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"feeds": feeds}}
	var fed []string
	for _, f := range feeds {
		fed = append(fed, f.ProductInstance)
		switch {
		case f.Detectors == 0:
			c.Add(ops.NotReady, fmt.Sprintf("no detectors of product instance %q yet: %s", f.ProductInstance, f.Error))
		case f.Error != "":
			c.Add(ops.Degraded, fmt.Sprintf("the last good detectors of product instance %q stay in use: %s", f.ProductInstance, f.Error))
		}
	}
	if len(feeds) == 0 {
		c.Add(ops.NotReady, noFeeds)
	}
	for _, client := range d.keys.Clients() {
		if i := client.ProductInstance; client.May(contract.RightIngest) && !slices.Contains(fed, i) {
			fed = append(fed, i) // report it once
			c.Add(ops.Degraded, fmt.Sprintf("a key may ingest for product instance %q, which has no entry in registry.feeds: its batches are answered 403", i))
		}
	}
	return c
}

// forecastState never makes the daemon unready, because batches do not need forecasts. show is false if
// forecasts are neither configured nor wanted by a key.
func (d *daemon) forecastState() (c ops.Component, show bool) {
	feed, layer := d.forecasts.Status(), d.layer.Status(time.Now())
	c = ops.Component{State: ops.OK, Detail: map[string]any{"feed": feed, "layer": layer}}
	if feed.Feed == "" {
		c.Add(ops.Degraded, noForecasts)
		return c, slices.ContainsFunc(d.keys.Clients(), func(c *contract.Client) bool { return c.May(contract.RightForecast) })
	}
	switch {
	case !layer.Published:
		c.Add(ops.Degraded, "no forecasts yet: requests for them are answered 503")
	case layer.Stale:
		consequence := "still served"
		if layer.Refuses {
			consequence = "no longer served (layers.stale)"
		}
		c.Add(ops.Degraded, fmt.Sprintf("the feed has not confirmed the forecasts for %v: they are %s", time.Duration(layer.AgeSeconds)*time.Second, consequence))
	}
	if layer.LeftOut > 0 {
		c.Add(ops.Degraded, fmt.Sprintf("%d forecasts are left out: raise layers.max_streets and restart", layer.LeftOut))
	}
	if feed.Error != "" {
		c.Add(ops.Degraded, feed.Error)
	}
	return c, true
}

func (x *delivery) state() ops.Component {
	s := x.Status()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"lag_seconds": s.Lag.Seconds(), "delivered_rows": s.Rows}}
	switch {
	case s.Trouble != nil:
		c.Add(ops.Degraded, s.Trouble.Error())
	case s.Lag > slow:
		c.Add(ops.Degraded, fmt.Sprintf("%s behind", s.Lag.Round(time.Second)))
	}
	return c
}
