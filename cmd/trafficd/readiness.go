package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/status"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/schemas/contract"
	"trafficd/sources/registry"
)

// Messages about missing settings that have no default, for the log, the readiness check and
// --check-config.
const (
	noKeys      = "no API keys: every request is rejected with 401; set api.keys_file or api.keys (trafficctl key new creates a key)"
	noFeeds     = "no detector registry: every batch is rejected with 403; set registry.feeds"
	noFeed      = "no feed in registry.feeds has its product instance: its batches are rejected with 403"
	noForecasts = "a key has the forecast right, but no forecasts are configured, so its requests are rejected with 403; set forecasts.feed"
)

// A delivery is reported as behind if its lag is above slow, and as stalled if its store has
// accepted nothing for longer than hung. A healthy store accepts a block far sooner, even with
// retries.
const (
	slow = time.Minute
	hung = 15 * time.Second
)

// expiresSoon is how long before a certificate or a key expires the daemon warns, as the alerts do.
const expiresSoon = 14 * 24 * time.Hour

// readiness collects the state of every part. The daemon is ready as long as it can serve a key;
// parts that are not ready are then reported as degraded. Readiness does not depend on the stores,
// because the journal accepts batches while they are unreachable.
func (d *daemon) readiness() ops.Readiness {
	self := ops.Component{State: ops.OK, Detail: map[string]any{"version": version.Text()}}
	if d.draining.Load() {
		self.Add(ops.NotReady, ops.Unready, "draining")
	}
	if !d.started.Load() { // the parts do not exist yet
		self.Add(ops.NotReady, ops.Unready, "starting")
		return ops.NewReadiness(map[string]ops.Component{"daemon": self})
	}
	if d.registriesPending() { // a load balancer must not send batches before the registries have been read
		self.Add(ops.NotReady, ops.Unready, "starting: the detector registries are being read")
	}
	clients := d.keys.Clients()
	components := map[string]ops.Component{"journal": d.journalState(clients), "keys": d.keysState(), "settings": d.reloads.state()}
	registry, served := d.registryState(clients)
	if anyHas(clients, contract.RightIngest) || !anyHas(clients, contract.RightForecast|contract.RightRouting) {
		components["registry"] = registry
	}
	// A purpose for which there is no key does not decide.
	serves := map[string]bool{"ingest": served || !anyHas(clients, contract.RightIngest), "forecast": true, "routing": true}
	d.addDeliveries(components)
	idempotency := ops.Component{State: ops.OK}
	if err := d.idempotency.Full(); err != nil {
		idempotency.Add(ops.Degraded, ops.JournalFull, err.Error())
	}
	components["idempotency"] = idempotency
	if expires, invalid, stale := d.api.Certificate(time.Now()); !expires.IsZero() {
		components["certificate"] = certificateState(expires, invalid, stale)
	}
	if c, show := d.forecastState(clients); show {
		components["forecasts"] = c
		serves["forecast"] = c.State != ops.NotReady || !anyHas(clients, contract.RightForecast)
		served = served || c.State != ops.NotReady && anyHas(clients, contract.RightForecast)
	}
	if served || anyHas(clients, contract.RightRouting) {
		for name, c := range components {
			if c.State == ops.NotReady {
				c.State = ops.Degraded
				components[name] = c
			}
		}
	} else if len(clients) > 0 {
		keys := components["keys"]
		keys.Add(ops.NotReady, ops.Unready, "no key can be served, for the reasons of the other components")
		components["keys"] = keys
	}
	components["daemon"] = self
	r := ops.NewReadiness(components)
	r.Serves = serves
	for purpose := range serves {
		serves[purpose] = serves[purpose] && r.State != ops.NotReady
	}
	return r
}

// registriesPending reports whether a registry feed has neither been read nor failed since the
// start.
func (d *daemon) registriesPending() bool {
	if d.registryChecked.Load() {
		return false
	}
	pending := slices.ContainsFunc(d.registry.Status(), func(f registry.Status) bool { return f.Pending })
	d.registryChecked.Store(!pending)
	return pending
}

// addDeliveries adds the state of each store and of the dead letters.
func (d *daemon) addDeliveries(components map[string]ops.Component) {
	letters := ops.Component{State: ops.OK}
	for _, x := range d.deliveries {
		c := storeState(x.Status())
		if d.shared != nil {
			if n := d.shared.Deleted(x.name); n > 0 {
				c.Add(ops.Degraded, ops.LogDeleted, fmt.Sprintf("the log's retention deleted %d batches before they were delivered", n))
			}
		}
		components[x.name] = c
		rows, records := d.dead.Count(x.name)
		if rows > 0 {
			letters.Add(ops.Degraded, ops.DeadLetters, fmt.Sprintf("%s in the dead-letter file, rejected by %s",
				status.Measurements(float64(rows)), x.name))
		}
		if records > 0 {
			letters.Add(ops.Degraded, ops.RecordQuarantined, fmt.Sprintf(
				"records of the log that are not intact batches, skipped by the delivery to %s: %d in the dead-letter file", x.name, records))
		}
	}
	components["dead_letters"] = letters
}

func anyHas(clients []*contract.Client, right contract.Right) bool {
	return slices.ContainsFunc(clients, func(c *contract.Client) bool { return c.Rights&right != 0 })
}

func (d *daemon) journalState(clients []*contract.Client) ops.Component {
	c := ops.Component{State: ops.OK, Detail: map[string]any{"kind": d.cfg.Journal.Kind}}
	if d.local != nil {
		c.Detail["oldest_frame"], c.Detail["next_frame"] = d.local.Bounds()
	}
	if err := d.intake.CheckClock(); err != nil {
		c.Add(ops.NotReady, ops.ClockWrong, err.Error())
		return c
	}
	if err := d.journal.Ready(""); err != nil {
		c.Add(ops.NotReady, journalEntry(err), err.Error())
		return c
	}
	for _, client := range clients {
		if err := d.journal.Ready(client.ProductInstance); err != nil && client.May(contract.RightIngest) {
			c.Add(ops.NotReady, journalEntry(err), fmt.Sprintf("product instance %q: %s", client.ProductInstance, err))
		}
	}
	if d.local != nil {
		if err := d.local.NearlyLow(); err != nil {
			c.Add(ops.Degraded, ops.DiskLow, err.Error())
		}
	}
	return c
}

// journalEntry returns the entry about an error of Ready.
func journalEntry(err error) ops.Entry {
	switch {
	case errors.Is(err, durable.ErrFull):
		return ops.JournalFull
	case errors.Is(err, journal.ErrDiskLow):
		return ops.DiskLow
	case errors.Is(err, journal.ErrFailed):
		return ops.JournalErrors
	}
	return ops.Unready
}

// journalReady returns an error if the journal rejects the batches of the product instance.
func (d *daemon) journalReady(productInstance string) error {
	return cmp.Or(d.intake.CheckClock(), d.journal.Ready(productInstance))
}

func (d *daemon) keysState() ops.Component {
	clients := d.keys.Clients()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"keys": len(clients)}}
	if len(clients) == 0 {
		c.Add(ops.NotReady, ops.Unready, noKeys)
	}
	if err := d.keys.Err(); err != nil {
		c.Add(ops.Degraded, ops.KeysInvalid, err.Error())
	}
	for _, key := range d.keys.ExpireBefore(time.Now().Add(expiresSoon)) {
		c.Add(ops.Degraded, ops.KeyExpires, key)
	}
	return c
}

// certificateState returns the state of the TLS certificate that clients see. It is never NotReady:
// clients that do not check the certificate, such as some load balancers, can still be served.
func certificateState(expires time.Time, invalid, stale error) ops.Component {
	c := ops.Component{State: ops.OK, Detail: map[string]any{"expires": expires.UTC()}}
	if invalid != nil {
		c.Add(ops.Degraded, ops.CertificateExpires, invalid.Error())
	} else if time.Until(expires) < expiresSoon {
		c.Add(ops.Degraded, ops.CertificateExpires, fmt.Sprintf("the TLS certificate of the clients' listener expires on %s: "+
			"write a renewed certificate with its chain to api.tls_cert", expires.UTC().Format(time.DateOnly)))
	}
	if stale != nil {
		c.Add(ops.Degraded, ops.CertificateInvalid, stale.Error())
	}
	return c
}

// registryState returns the state of each product instance that has a feed or a key with the ingest
// right. served reports whether at least one of those keys can ingest.
func (d *daemon) registryState(clients []*contract.Client) (c ops.Component, served bool) {
	feeds := d.registry.Status()
	instances := map[string]ops.Component{}
	c = ops.Component{State: ops.OK, Detail: map[string]any{"feeds": feeds, "product_instances": instances}}
	add := func(instance string, state ops.State, see ops.Entry, reason string) {
		one := instances[instance]
		one.Add(state, see, reason)
		instances[instance] = one
		c.Add(state, see, fmt.Sprintf("product instance %q: %s", instance, reason))
	}
	for _, f := range feeds {
		instances[f.ProductInstance] = ops.Component{State: ops.OK}
		switch {
		case f.Detectors == 0:
			add(f.ProductInstance, ops.NotReady, ops.RegistryStale, "no detectors yet, so batches are rejected with 503: "+f.Error)
		case f.Error != "":
			add(f.ProductInstance, ops.Degraded, ops.RegistryStale, "the last valid detector list remains in use: "+f.Error)
		}
	}
	if len(feeds) == 0 {
		c.Add(ops.NotReady, ops.Unready, noFeeds)
	}
	for _, client := range clients {
		if !client.May(contract.RightIngest) {
			continue
		}
		one, known := instances[client.ProductInstance]
		if !known {
			see, problem := ops.Unready, noFeed
			if d.registry.HasFeed(client.ProductInstance) {
				see, problem = ops.RegistryStale, "the shared detector list has not been read yet: its batches are rejected with 503"
			}
			add(client.ProductInstance, ops.NotReady, see, fmt.Sprintf("key %q has the ingest right, but %s", client.Name, problem))
		}
		served = served || known && one.State != ops.NotReady && d.journalReady(client.ProductInstance) == nil
	}
	return c, served
}

// forecastState returns the state of the forecasts, which is NotReady if none can be served. show
// is false if forecasts are not configured and no key has the forecast right.
func (d *daemon) forecastState(clients []*contract.Client) (c ops.Component, show bool) {
	feed, layer := d.forecasts.Status(), d.layer.Status(time.Now())
	c = ops.Component{State: ops.OK, Detail: map[string]any{"feed": feed, "layer": layer}}
	if feed.Feed == "" {
		c.Add(ops.NotReady, ops.Unready, noForecasts)
		return c, anyHas(clients, contract.RightForecast)
	}
	switch {
	case !layer.Published:
		c.Add(ops.NotReady, ops.ForecastsStale, "no forecasts yet: requests for them are rejected with 503")
	case layer.Stale:
		state, consequence := ops.Degraded, "still served"
		if layer.Refuses {
			state, consequence = ops.NotReady, "no longer served (layers.stale)"
		}
		c.Add(state, ops.ForecastsStale, fmt.Sprintf("%s: the layer is %s", layer.Reason, consequence))
	}
	if layer.LeftOut > 0 {
		c.Add(ops.Degraded, ops.ForecastsStale, fmt.Sprintf("%d forecasts are omitted; raise layers.max_streets and restart", layer.LeftOut))
	}
	if feed.Error != "" {
		c.Add(ops.Degraded, ops.ForecastsStale, feed.Error)
	}
	return c, true
}

func storeState(s pipeline.Status) ops.Component {
	c := ops.Component{State: ops.OK, Detail: map[string]any{
		"lag_seconds": s.Lag.Seconds(), "stalled_seconds": s.Stalled.Seconds(),
		"lag_rows": s.Waiting, "counted": s.Counted, "delivered_rows": s.Rows,
	}}
	see, problem := ops.StoreUnreachable, s.Trouble
	if problem == nil && s.Stalled > hung {
		see, problem = ops.DeliveryLag, errors.New("no attempt has failed yet, but the store hangs or is very slow")
	}
	if errors.As(problem, new(*pipeline.BrokenPromise)) {
		see = ops.BrokenPromise
	}
	switch {
	case problem != nil:
		c.Detail["error"] = problem.Error()
		c.Add(ops.Degraded, see, problem.Error())
	case s.Lag > slow:
		c.Add(ops.Degraded, ops.DeliveryLag, fmt.Sprintf("%s behind", s.Lag.Round(time.Second)))
	}
	return c
}
