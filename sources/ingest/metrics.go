package ingest

import (
	"errors"
	"sync"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

var (
	batchesTotal = metrics.NewCounters("trafficd_ingest_batches_total", "Batches, by response code; OK means a 207.", "code")
	batches      = counters(batchesTotal, func(c contract.Code) bool {
		switch c {
		case contract.NotFound, contract.MethodNotAllowed, contract.Unauthenticated, contract.RateLimited:
			return false // such requests do not reach the endpoint
		}
		return c.Status() != 0
	})
	noResponse = metrics.NewCounter("trafficd_ingest_batches_without_response_total",
		"Batches whose connection was closed without a response because their outcome is unknown.")
	itemsAccepted = metrics.NewCounter("trafficd_ingest_items_accepted_total",
		"Accepted items, as reported to clients: replayed responses count again.")
	itemsRejected = counters(metrics.NewCounters("trafficd_ingest_items_rejected_total",
		"Rejected items, by code, as reported to clients: replayed responses count again.", "code"), contract.Code.OfItems)
	itemsDuplicate = metrics.NewCounter("trafficd_ingest_items_duplicate_total",
		"Accepted items that replace an earlier item of their batch in the archive, as reported to clients: replayed responses count again.")

	bodyBytes      = metrics.NewCounter("trafficd_ingest_body_bytes_total", "Bytes of batch bodies received, before decompression.")
	receiveSeconds = metrics.NewSeconds("trafficd_ingest_receive_seconds", "Time to receive the body of a batch, in seconds.")
	aborted        = metrics.NewCounter("trafficd_ingest_aborted_total", "Batches whose client disconnected before the end of the body.")
)

// Metrics of each client that may send batches.
var (
	clientBatches  = metrics.NewCounters("trafficd_ingest_client_batches_total", "Batches of a client that got a 207 response.", "client")
	clientAccepted = metrics.NewCounters("trafficd_ingest_client_items_accepted_total",
		"Accepted items of a client, as reported to it: replayed responses count again.", "client")
	clientRejected = metrics.NewCounters("trafficd_ingest_client_items_rejected_total",
		"Rejected items of a client, as reported to it: replayed responses count again.", "client")
	clientLast = metrics.NewGauges("trafficd_ingest_client_last_batch_timestamp_seconds",
		"Unix time of a client's last batch that got a 207 response, in seconds; 0 if there has been none since the process started.", "client")
	clientPeriod = metrics.NewGauges("trafficd_ingest_client_period_seconds",
		"Usual time between a client's batches that got a 207 response, in seconds; absent before the tenth.", "client")
	clientNewest = metrics.NewGauges("trafficd_ingest_client_newest_interval_timestamp_seconds",
		"End of the newest interval that was accepted from a client, as Unix time in seconds; absent before the first.", "client")
	clientLag = metrics.NewGauges("trafficd_ingest_client_usual_lag_seconds",
		"Usual age of a client's newest interval when a newer one is accepted, in seconds; absent before the tenth.", "client")
)

type clientMetrics struct {
	batches, accepted, rejected metrics.Counter
	last                        metrics.Gauge
	pace                        *pace
}

// pace is how often a client sends batches and how far its measurements are behind the clock.
type pace struct {
	mu          sync.Mutex
	removed     bool      // the client's metrics have been deleted
	last        time.Time // time of the last batch
	newest      time.Time // end of the newest interval, at most the time of its batch
	period, lag usual
}

// usual estimates a usual duration as the mean of those since a time, weighted by their length: the
// short gaps within a burst of batches hardly count. Earlier durations have less weight.
type usual struct {
	count        int
	sum, squares float64 // weighted sums of the durations, in seconds, and of their squares
}

const (
	usualMemory  = 32 // each duration lowers the weight of the earlier ones by 1/usualMemory
	usualMinimum = 9  // minimum number of durations for an estimate
)

// update records a client's batch: its time, and the end of its newest interval, or 0. It sets the
// client's gauges unless the client has been removed. A detector whose clock is ahead counts as on
// time, or the client would seem to bring nothing new after it.
func (p *pace) update(client string, now time.Time, newest int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return
	}
	if seconds, known := p.period.observe(p.last, now); known {
		clientPeriod.WithLabelValues(client).Set(seconds)
	}
	p.last = now
	if at := time.Unix(0, min(newest, now.UnixNano())); newest > 0 && at.After(p.newest) {
		if seconds, known := p.lag.observe(p.newest, now); known {
			clientLag.WithLabelValues(client).Set(seconds)
		}
		p.newest = at
		clientNewest.WithLabelValues(client).Set(float64(at.UnixMilli()) / 1e3)
	}
}

func (p *pace) remove(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed = true
	clientPeriod.DeleteLabelValues(client)
	clientNewest.DeleteLabelValues(client)
	clientLag.DeleteLabelValues(client)
}

// observe records the duration since a time, unless that is zero. It returns the estimate, and
// whether it is based on enough durations.
func (u *usual) observe(since, now time.Time) (seconds float64, known bool) {
	if !since.IsZero() {
		gap := max(now.Sub(since).Seconds(), 0)
		u.sum, u.squares = u.sum*(1-1./usualMemory)+gap, u.squares*(1-1./usualMemory)+gap*gap
		u.count++
	}
	return u.squares / u.sum, u.count >= usualMinimum && u.sum > 0
}

// UseClients creates the metrics of the given clients and deletes those of all others. It must not
// be called concurrently.
func (e *Endpoint) UseClients(clients []*contract.Client) {
	used, before := map[string]*clientMetrics{}, map[string]*clientMetrics{}
	if now := e.clients.Load(); now != nil {
		before = *now
	}
	for _, c := range clients {
		if c.May(contract.RightIngest) {
			used[c.Name] = &clientMetrics{
				clientBatches.WithLabelValues(c.Name), clientAccepted.WithLabelValues(c.Name),
				clientRejected.WithLabelValues(c.Name), clientLast.WithLabelValues(c.Name), new(pace),
			}
			if known := before[c.Name]; known != nil {
				used[c.Name].pace = known.pace
			}
		}
	}
	e.clients.Store(&used)
	for name, old := range before {
		if used[name] == nil {
			clientBatches.DeleteLabelValues(name)
			clientAccepted.DeleteLabelValues(name)
			clientRejected.DeleteLabelValues(name)
			clientLast.DeleteLabelValues(name)
			old.pace.remove(name)
			e.warned.Delete(name)
		}
	}
}

func (e *Endpoint) count(client string, r *batch.Result) {
	batches[contract.OK].Inc()
	itemsAccepted.Add(float64(r.Accepted))
	for i := range r.List {
		if code := r.List[i].Code; code != contract.UnknownCode {
			itemsRejected[code].Inc()
		}
	}
	if clients := e.clients.Load(); clients != nil {
		if m := (*clients)[client]; m != nil {
			m.batches.Inc()
			m.accepted.Add(float64(r.Accepted))
			m.rejected.Add(float64(r.Rejected()))
			m.last.SetToCurrentTime()
			m.pace.update(client, time.Now(), r.Newest)
		}
	}
}

var (
	slots  = admission.Requests("trafficd_ingest", "batches")
	memory = admission.Memory("trafficd_ingest", "batches")
)

func counters(vec *metrics.Counters, occurs func(contract.Code) bool) (all [contract.CodeCount]metrics.Counter) {
	for code := range contract.CodeCount {
		if occurs(code) {
			all[code] = vec.WithLabelValues(code.String())
		}
	}
	return all
}

func countError(err error) {
	var apiErr *contract.APIError
	switch {
	case errors.As(err, &apiErr):
		batchesTotal.WithLabelValues(apiErr.Code.String()).Inc()
	case errors.Is(err, batch.ErrNoResponse):
		noResponse.Inc()
	default:
		batches[contract.InternalError].Inc()
	}
}
