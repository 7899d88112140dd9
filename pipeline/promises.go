package pipeline

import (
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/metrics"
)

// promise is an invariant that is also checked in production, because that costs almost nothing.
// Only a bug, broken memory or edited files can break it. What was about to happen then does not
// happen: a batch gets 503, and a delivery stops and tries again from its progress. Frames are
// compared with those that were read since then.
type promise struct {
	name   string // label of the metric
	logged sync.Once
}

var (
	promisedBatch    = promise{name: "batch"}    // accepted + rejected = items, and the frame has the accepted rows
	promisedResponse = promise{name: "response"} // a remembered response is about the repeated batch
	promisedOrder    = promise{name: "order"}    // the numbers and the received_at of frames increase
	promisedCursor   = promise{name: "cursor"}   // a cursor does not move back
	promisedBlock    = promise{name: "block"}    // a block is sent as planned, and its plan has been saved
)

var brokenPromises = metrics.NewCounters("trafficd_pipeline_broken_promises_total",
	"Checks of the daemon's own promises that failed, after which it rejected a batch or stopped a delivery.", "promise")

func init() { // so that the first one is an increase
	for _, p := range []*promise{&promisedBatch, &promisedResponse, &promisedOrder, &promisedCursor, &promisedBlock} {
		brokenPromises.WithLabelValues(p.name)
	}
}

// BrokenPromise is the error of a failed check.
type BrokenPromise struct{ Name, Found string }

func (e *BrokenPromise) Error() string {
	return fmt.Sprintf("the daemon's check %q failed, so it stopped before losing anything: %s", e.Name, e.Found)
}

// broken counts a failed check, logs it if it is the first of the process, and returns the error.
func (p *promise) broken(log zerolog.Logger, found string, args ...any) error {
	err := &BrokenPromise{p.name, fmt.Sprintf(found, args...)}
	brokenPromises.WithLabelValues(p.name).Inc()
	p.logged.Do(func() { log.Error().Err(err).Msg("a promise is broken; see the runbook, TrafficdBrokenPromise") })
	return err
}
