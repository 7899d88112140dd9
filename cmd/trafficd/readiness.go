package main

import (
	"fmt"
	"slices"
	"time"

	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/ops"
	"trafficd/schemas/contract"
)

// What has no default; said in the log and in readiness.
const (
	noKeys  = "there are no API keys, so every request is answered 401: set api.keys_file (or api.keys); trafficctl key new makes one"
	noFeeds = "there is no detector registry, so no batch can be validated: set registry.feeds"
)

// readiness asks every part. Only what makes batches be refused makes the daemon
// unready; a store that is away does not, because the journal goes on taking.
func (d *daemon) readiness() ops.Readiness {
	components := map[string]ops.Component{"daemon": d.daemonState()}
	if d.started.Load() { // before that the parts are not there to be asked
		components["journal"] = d.journalState()
		components["keys"] = d.keysState()
		components["registry"] = d.registryState()
		for _, x := range d.deliveries {
			components[x.name] = x.state()
		}
		if c, some := d.forecastState(); some {
			components["forecasts"] = c
		}
	}
	return ops.Judge(components)
}

func (d *daemon) daemonState() ops.Component {
	c := ops.Fine(map[string]any{"version": version.Text()})
	switch {
	case d.draining.Load():
		c.Add(ops.NotReady, "draining: a stop was asked for")
	case !d.started.Load():
		c.Add(ops.NotReady, "starting")
	}
	return c
}

func (d *daemon) journalState() ops.Component {
	oldest, next := d.journal.Bounds()
	c := ops.Fine(map[string]any{"oldest_frame": oldest, "next_frame": next})
	if err := d.journal.Ready(); err != nil {
		c.Add(ops.NotReady, err.Error())
	}
	return c
}

func (d *daemon) keysState() ops.Component {
	clients := d.keys.Clients()
	c := ops.Fine(map[string]any{"keys": len(clients)})
	if len(clients) == 0 {
		c.Add(ops.NotReady, noKeys)
	}
	if err := d.keys.Err(); err != nil {
		c.Add(ops.Degraded, err.Error())
	}
	return c
}

// registryState wants a list for each product instance that a key may ingest for.
func (d *daemon) registryState() ops.Component {
	feeds := d.registry.Status()
	c := ops.Fine(map[string]any{"feeds": feeds})
	for _, f := range feeds {
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
	for _, instance := range d.instancesWithoutFeed() {
		c.Add(ops.Degraded, fmt.Sprintf("a key may ingest for product instance %q, which has no entry in registry.feeds: its batches are answered 503", instance))
	}
	return c
}

func (d *daemon) instancesWithoutFeed() []string {
	var fed, missing []string
	for _, f := range d.registry.Status() {
		fed = append(fed, f.ProductInstance)
	}
	for _, client := range d.keys.Clients() {
		if i := client.ProductInstance; client.May(contract.RightIngest) && !slices.Contains(fed, i) && !slices.Contains(missing, i) {
			missing = append(missing, i)
		}
	}
	return missing
}

// slow is from when on a delivery is called behind: far more than any healthy
// store needs for a block, retries included.
const slow = time.Minute

func (x *delivery) state() ops.Component {
	s := x.Status()
	c := ops.Fine(map[string]any{"lag_seconds": s.Lag.Seconds(), "delivered_rows": s.Rows})
	switch {
	case s.Trouble != nil:
		c.Add(ops.Degraded, s.Trouble.Error())
	case s.Lag > slow:
		c.Add(ops.Degraded, fmt.Sprintf("%s behind", s.Lag.Round(time.Second)))
	}
	return c
}
