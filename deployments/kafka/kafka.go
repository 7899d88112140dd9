// Package kafka embeds the Maven project that pins the jars of an Apache Kafka broker.
package kafka

import _ "embed"

// POM is the project. Its run-time dependencies are the jars.
//
//go:embed pom.xml
var POM []byte
