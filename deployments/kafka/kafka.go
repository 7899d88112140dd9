// Package kafka holds the list of jars that make an Apache Kafka broker, pinned.
package kafka

import _ "embed"

// POM is the Maven project whose run-time dependencies are a broker.
//
//go:embed pom.xml
var POM []byte
