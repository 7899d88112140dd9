// Package dial connects to the stores: Kafka and ClickHouse. Sources and sinks share it, so that
// TLS, SASL, private certificate authorities, and the limits on what a peer may send work the same
// in all of them. It knows nothing about the data that is sent.
//
// Its settings are sections, or parts of sections, of the configuration. Validate takes the key of
// the section, with a trailing dot, and reports all invalid keys.
package dial
