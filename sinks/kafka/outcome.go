package kafka

import (
	"errors"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/lib/metrics"
)

// outcome is the result of a produce request.
type outcome uint8

const (
	acknowledged outcome = iota // the record batch is in the log, now or from an earlier attempt
	retry                       // it may be in the log: send the same bytes again
	lost                        // the broker rejected the epoch or sequence: look up, then continue with the next epoch
	rejected                    // it is not in the log, and retries cannot help
)

// outcomeOf returns the outcome of an attempt with the given error. An error is permanent only if
// it depends on the record batch alone. INVALID_TIMESTAMP is not permanent, because it depends on
// the topic's settings. Unlisted errors are retried.
func outcomeOf(err error) outcome {
	var code kafka.Error
	switch {
	case err == nil:
		return acknowledged
	case !errors.As(err, &code):
		return retry // no response: connection, timeout, or not sent at all
	}
	switch code {
	case kafka.DuplicateSequenceNumber:
		return acknowledged
	case kafka.OutOfOrderSequenceNumber, kafka.InvalidProducerEpoch, kafka.UnknownProducerId,
		kafka.InvalidProducerIDMapping, kafka.ProducerFenced:
		return lost
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord:
		return rejected
	}
	return retry
}

// hint returns the remedy for an error that the operator must fix, or an empty string.
func hint(err error) string {
	code, _ := errors.AsType[kafka.Error](err)
	switch code {
	case kafka.InvalidTimestamp:
		return " (raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic, or compare the clocks)"
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		return " (grant Describe, Write and Read on the topic, and before Kafka 2.8 IdempotentWrite on the cluster, to the user of kafka.sasl)"
	case kafka.UnsupportedCompressionType, kafka.UnsupportedForMessageFormat:
		return " (choose another kafka.compression)"
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return " (fewer replicas are in sync than the topic's min.insync.replicas)"
	case kafka.UnknownTopicOrPartition:
		return " (create the topic; if kafka.create_topic.partitions is set, the daemon creates it)"
	}
	return ""
}

var (
	recordsTotal   = metrics.NewCounter("trafficd_kafka_records_total", "Records acknowledged by all in-sync replicas, each counted once.")
	bytesTotal     = metrics.NewCounter("trafficd_kafka_bytes_total", "Size of all record batches sent, after compression, in bytes.")
	requestsTotal  = metrics.NewCounter("trafficd_kafka_requests_total", "Produce requests sent.")
	produceSeconds = metrics.NewSeconds("trafficd_kafka_produce_seconds", "Duration of a produce request, in seconds.")

	resolvedTotal = metrics.NewCounters("trafficd_kafka_resolved_total",
		"In-doubt records that were looked up in the topic, by result: found or missing.", "result")
	foundTotal   = resolvedTotal.WithLabelValues("found")
	missingTotal = resolvedTotal.WithLabelValues("missing")

	errorsVec = metrics.NewCounters("trafficd_kafka_errors_total",
		"Failed record batches, by error class, and failures to plan a block (plan) or to look up an in-doubt one (look_up).", "class")
	errorsTotal = map[outcome]metrics.Counter{
		retry: errorsVec.WithLabelValues("retry"), lost: errorsVec.WithLabelValues("lost"), rejected: errorsVec.WithLabelValues("rejected"),
	}
	planErrorsTotal   = errorsVec.WithLabelValues("plan")
	lookUpErrorsTotal = errorsVec.WithLabelValues("look_up")
)
