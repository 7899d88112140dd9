package kafkalog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
)

// Config is the journal.log section of the configuration. Topic, partitions and group must be the
// same on all replicas.
type Config struct {
	dial.Kafka `setting:",squash"`
	// number of partitions of the topic. Product instances are spread over them, and replicas share
	// them. Do not change it while measurements are undelivered.
	Partitions int `setting:"partitions"`
	// replication factor of a topic that the daemon creates; 0 means 3, or the number of brokers if
	// there are fewer
	ReplicationFactor int `setting:"replication_factor"`
	// retention of a topic that the daemon creates, at least five times pipeline.idempotency.window;
	// batches are rejected once a store lags by four fifths of it
	Retention     time.Duration `setting:"retention"`
	Group         string        `setting:"group"`           // prefix of the names of the consumer groups, one for each store
	MaxFrameBytes int           `setting:"max_frame_bytes"` // maximum size of a frame, which holds the accepted items of a batch

	// sessionTimeout is no setting, but tests vary it. It is the time without a heartbeat after which
	// other replicas take over a replica's partitions. It is the brokers' default of
	// group.min.session.timeout.ms: a shorter timeout takes partitions away from replicas that are
	// merely slow, a longer one delays measurements.
	sessionTimeout time.Duration
}

// produceTimeout returns the maximum wait for the brokers, after which batches get 503. It leaves
// time for three requests.
func (c Config) produceTimeout() time.Duration { return 3 * c.RequestTimeout }

// maxQueueBytes is the maximum total size of the frames that wait for the brokers. At the limit,
// batches get 503. A single frame may be larger.
const maxQueueBytes = 256 << 20

// DefaultConfig returns the default settings, which use a broker on this machine.
func DefaultConfig() Config {
	c := Config{
		Kafka: dial.DefaultKafka("trafficd.log"), Partitions: 6, Retention: 7 * 24 * time.Hour, Group: "trafficd",
		MaxFrameBytes: 16 << 20, sessionTimeout: 6 * time.Second,
	}
	c.RequestTimeout = 5 * time.Second
	c.MetadataMaxAge = time.Second // it also bounds the time until a lost leader is noticed
	return c
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	return errors.Join(
		c.Kafka.Validate(""),
		settings.Within("partitions", c.Partitions, 1, 1000, "a replica runs two delivery loops for each of its partitions"),
		settings.Within("replication_factor", c.ReplicationFactor, 0, 10, "it cannot exceed the number of brokers"),
		settings.AtLeast("retention", c.Retention, time.Hour, "measurements that are not delivered within the retention are lost"),
		settings.Check(c.Group != "", "group must be set"),
		settings.Within("max_frame_bytes", c.MaxFrameBytes, 1<<10, 100<<20, "a whole frame is read into memory"),
	)
}

// recordOverhead is an upper bound on the bytes that a record batch adds to a frame.
const recordOverhead = 4 << 10

// CheckWindow returns an error if the last fifth of the retention is shorter than the idempotency
// window (doc.go, "What is not covered").
func (c Config) CheckWindow(window time.Duration) error {
	return checkWindow("retention", c.Retention, window)
}

func checkWindow(key string, retention, window time.Duration) error {
	return settings.Check(retention < 0 || retention/5 >= window,
		"%s is %v, must be at least five times pipeline.idempotency.window (%v): otherwise a batch that was sent twice could be delivered twice",
		key, retention, window)
}

// checkTopic returns an error if the topic is not suitable for the log. Each joined error starts
// with a setting's key.
func (c Config) checkTopic(t dial.Topic, window time.Duration) error {
	var errs []error
	if n := len(t.Partitions); n != c.Partitions {
		errs = append(errs, fmt.Errorf("partitions: topic %q has %d partitions, but the setting is %d: "+
			"set it to the topic's number on all replicas", c.Topic, n, c.Partitions))
	}
	if t.Config == nil { // the topic may delete measurements before they are delivered
		return errors.Join(append(errs, fmt.Errorf("topic: %w", t.ConfigErr))...)
	}
	errs = append(errs, t.CheckDurability())
	if size := t.Number("retention.bytes", 0); size >= 0 {
		errs = append(errs, t.Errorf("has retention.bytes %d, which deletes undelivered measurements: set it to -1", size))
	}
	retention := time.Duration(min(t.Number("retention.ms", -1), math.MaxInt64/int(time.Millisecond))) * time.Millisecond
	if err := checkWindow("retention.ms", retention, window); err != nil {
		errs = append(errs, t.Errorf("is not suitable: %w", err))
	}
	if kind := t.Config["message.timestamp.type"]; kind != "CreateTime" {
		errs = append(errs, t.Errorf("has message.timestamp.type %s: set it to CreateTime", kind))
	}
	if size, least := t.Number("max.message.bytes", 0), c.MaxFrameBytes+recordOverhead; size < least {
		errs = append(errs, t.Errorf("has max.message.bytes %d, must be at least %d for frames of max_frame_bytes: "+
			"raise it or lower max_frame_bytes", size, least))
	}
	return errors.Join(errs...)
}
