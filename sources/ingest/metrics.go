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
)

type clientMetrics struct {
	batches, accepted, rejected metrics.Counter
	last                        metrics.Gauge
	period                      *period
}

// period estimates the usual time between batches as the mean of the gaps, weighted by their
// length, so that the short gaps within a burst hardly count. Older gaps have less weight.
type period struct {
	mu           sync.Mutex
	removed      bool // the client's metrics have been deleted
	last         time.Time
	gaps         int
	sum, squares float64 // weighted sums of the gaps, in seconds, and of their squares
}

const (
	periodMemory = 32 // each batch lowers the weight of the earlier gaps by 1/periodMemory
	periodGaps   = 9  // minimum number of gaps for an estimate
)

// update records the time of a client's batch. It sets the client's gauge if there is an estimate
// and the client has not been removed.
func (p *period) update(client string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seconds, known := p.observe(now); known && !p.removed {
		clientPeriod.WithLabelValues(client).Set(seconds)
	}
}

func (p *period) remove(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed = true
	clientPeriod.DeleteLabelValues(client)
}

// observe records the time of a batch. It returns the estimate, and whether it is based on
// enough gaps.
func (p *period) observe(now time.Time) (seconds float64, known bool) {
	if !p.last.IsZero() {
		gap := max(now.Sub(p.last).Seconds(), 0)
		p.sum, p.squares = p.sum*(1-1./periodMemory)+gap, p.squares*(1-1./periodMemory)+gap*gap
		p.gaps++
	}
	p.last = now
	return p.squares / p.sum, p.gaps >= periodGaps && p.sum > 0
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
				clientRejected.WithLabelValues(c.Name), clientLast.WithLabelValues(c.Name), new(period),
			}
			if known := before[c.Name]; known != nil {
				used[c.Name].period = known.period
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
			old.period.remove(name)
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
			m.period.update(client, time.Now())
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
