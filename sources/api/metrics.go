package api

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/schemas/contract"
)

var (
	connectionsOpen     = metrics.NewGauge("trafficd_api_connections", nil)
	connectionsMax      = metrics.NewGauge("trafficd_api_connections_max", nil)
	connectionsRejected = metrics.NewCounter("trafficd_api_connections_rejected_total")
	connectionsEvicted  = metrics.NewCounter("trafficd_api_connections_evicted_total")
	acceptErrors        = metrics.NewCounter("trafficd_api_accept_errors_total")
	discardedBytes      = metrics.NewCounter("trafficd_api_discarded_bytes_total")
	unansweredRequests  = metrics.NewCounter("trafficd_api_requests_unanswered_total")
	panics              = metrics.NewCounter("trafficd_api_panics_total")
	keysActive          = metrics.NewGauge("trafficd_api_keys", nil)
	keysReloads         = metrics.NewCounter("trafficd_api_keys_reloads_total")
	keysReloadErrors    = metrics.NewCounter("trafficd_api_keys_reload_errors_total")
	keysStale           = metrics.NewGauge("trafficd_api_keys_stale", nil) // 1: the keys file is invalid, the last valid set is in use

	noRoute = metricsOf("none") // requests without a route
)

// routeMetrics counts the requests of one route by their outcome.
type routeMetrics struct {
	requests [contract.CodeCount]*metrics.Counter // by code; OK: answered by the endpoint
	seconds  *metrics.Histogram
}

func metricsOf(route string) *routeMetrics {
	m := &routeMetrics{seconds: metrics.GetOrCreateHistogram(fmt.Sprintf("trafficd_api_request_seconds{route=%q}", route))}
	for code := range m.requests {
		label := contract.Code(code).String()
		if contract.Code(code).Status() == 0 {
			continue // for items only
		}
		m.requests[code] = metrics.GetOrCreateCounter(fmt.Sprintf("trafficd_api_requests_total{route=%q,code=%q}", route, label))
	}
	return m
}

func (m *routeMetrics) count(code contract.Code) {
	if m.requests[code] == nil {
		code = contract.InternalError
	}
	m.requests[code].Inc()
}
