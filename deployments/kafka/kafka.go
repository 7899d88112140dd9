// Package kafka holds the pinned list of jars that make up an Apache Kafka broker.
package kafka

import _ "embed"

// POM is the Maven project whose run-time dependencies make up a broker.
//
//go:embed pom.xml
var POM []byte
