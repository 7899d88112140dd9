// Package dial connects to Kafka and ClickHouse. All sources and sinks use it, so that TLS, SASL,
// private certificate authorities and the limits on what a server may send are the same for all of
// them.
//
// Its types for settings are sections, or parts of sections, of the configuration. Their Validate
// methods take the key of the section, with a trailing dot, and report all invalid keys.
package dial
