// Package dial connects to Kafka and ClickHouse. All sources and sinks use it, so that TLS, SASL,
// private CAs and the limits on server responses are the same for all of them.
//
// Its configuration types are sections, or parts of sections, of the daemon's configuration. Their
// Validate methods expect the key of the section with a trailing dot, and report all invalid keys.
package dial
