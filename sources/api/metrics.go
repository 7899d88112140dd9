package api

import (
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
)

var (
	connectionsOpen     = metrics.NewGauge("trafficd_api_connections", "Open connections of clients.")
	connectionsMax      = metrics.NewGauge("trafficd_api_connections_max", "Maximum number of open connections of clients.")
	connectionsRejected = metrics.NewCounter("trafficd_api_connections_rejected_total",
		"Connections closed immediately because too many were open.")
	connectionsEvicted = metrics.NewCounter("trafficd_api_connections_evicted_total",
		"Connections that were closed to admit newer ones: those without a valid key, and idle ones of a client that has reached its quota.")
	certificatesRefused = metrics.NewCounters("trafficd_api_client_certificates_refused_total",
		"TLS handshakes that ended because of the client's certificate: expired, of an unknown CA, or otherwise invalid.", "reason")
	acceptErrors   = metrics.NewCounter("trafficd_api_accept_errors_total", "Failed attempts to accept a connection.")
	discardedBytes = metrics.NewCounter("trafficd_api_discarded_bytes_total",
		"Bytes of rejected bodies that were read and discarded before the connection was closed.")
	noResponse = metrics.NewCounter("trafficd_api_requests_without_response_total",
		"Requests whose connection was closed without a response because their outcome is unknown.")
	panics            = metrics.NewCounter("trafficd_api_panics_total", "Requests that panicked and got a 500.")
	keysChecks        = feedloop.NewResults("trafficd_api_keys_checks_total", "Checks of the keys file", "loaded")
	certificateChecks = feedloop.NewResults("trafficd_api_certificate_checks_total", "Checks of the TLS certificate", "loaded")

	keyExpiry = metrics.NewGauges("trafficd_api_key_expiry_timestamp_seconds",
		"Time at which an API key, or the client certificate that was used last, expires or has expired, as Unix time in seconds; absent: never.",
		"client")

	requestsTotal = metrics.NewCounters("trafficd_api_requests_total",
		"Requests with a response, by route and code; the code is OK if the endpoint returned no error.", "route", "code")
	requestSeconds = metrics.NewSecondsBy("trafficd_api_request_seconds",
		"Time from receiving the header of a request until its response can be sent, in seconds.", "route")

	refusedExpired   = certificatesRefused.WithLabelValues("expired")
	refusedUnknownCA = certificatesRefused.WithLabelValues("unknown_ca")
	refusedInvalid   = certificatesRefused.WithLabelValues("invalid")

	noRoute = metricsOf("none") // requests to unknown paths
)
