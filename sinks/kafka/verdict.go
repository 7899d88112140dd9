package kafka

import (
	"errors"

	"github.com/segmentio/kafka-go"
)

// verdict is what an answer to a produce request means.
type verdict uint8

const (
	acknowledged verdict = iota // the record batch is in the log, now or from an earlier attempt
	retry                       // not acknowledged: it may be in the log or not, the same again is right
	moved                       // the same, but another broker has to be asked
	lost                        // the broker does not take this producer's epoch or sequence: look up, then go on with the next epoch
	refused                     // not in the log, and the same bytes can never be

	verdicts
)

// String is the label of the metric of errors.
func (v verdict) String() string {
	return [verdicts]string{"acknowledged", "retry", "moved", "lost", "refused"}[v]
}

// judge is the one place that decides what becomes of an attempt. Whatever is
// not listed is retried: only what a broker decides from the record batch
// alone is refused for good. INVALID_TIMESTAMP is not among that: it depends on
// a setting of the topic that holds for all rows alike, so the operator can
// mend it and nothing has to go to the dead letters.
func judge(err error) verdict {
	var code kafka.Error
	switch {
	case err == nil:
		return acknowledged
	case !errors.As(err, &code):
		return retry // no answer: connection, timeout, or not sent at all
	}
	switch code {
	case kafka.DuplicateSequenceNumber:
		return acknowledged
	case kafka.OutOfOrderSequenceNumber, kafka.InvalidProducerEpoch, kafka.UnknownProducerId,
		kafka.InvalidProducerIDMapping, kafka.ProducerFenced:
		return lost
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord:
		return refused
	case kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.UnknownTopicOrPartition, kafka.UnknownTopicID,
		kafka.KafkaStorageError:
		return moved
	}
	return retry
}

// answered tells whether a broker has answered.
func answered(err error) bool {
	var code kafka.Error
	return err == nil || errors.As(err, &code)
}

// tooLarge tells whether smaller record batches would help.
func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// hint says what to do about an error that does not pass by itself.
func hint(err error) string {
	var code kafka.Error
	if !errors.As(err, &code) {
		return ""
	}
	switch code {
	case kafka.InvalidTimestamp:
		return " (raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic, or compare the clocks)"
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		return " (grant Describe, Write and Read on the topic and IdempotentWrite on the cluster to the user of kafka.sasl)"
	case kafka.UnsupportedCompressionType, kafka.UnsupportedForMessageFormat:
		return " (choose another kafka.compression)"
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return " (fewer replicas are in sync than min.insync.replicas of the topic wants)"
	case kafka.UnknownTopicOrPartition:
		return " (create the topic, with no fewer partitions than it had, or set kafka.create_topic.partitions)"
	}
	return ""
}
