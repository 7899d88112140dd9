package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"trafficd/pipeline/lib/settings"
)

// Kafka configures connections to Kafka for one topic.
type Kafka struct {
	Brokers        []string      `setting:"brokers"`         // host:port of some brokers, which return the addresses of the others
	Topic          string        `setting:"topic"`           // name of the topic
	RequestTimeout time.Duration `setting:"request_timeout"` // maximum time for a response, including the replication of a produce request
	TLS            TLS           `setting:"tls"`             // encryption of the connections
	SASL           SASL          `setting:"sasl"`            // authentication; none if mechanism is empty

	// No settings, but programs and tests differ in them.
	ClientID       string        `setting:"-"` // name in the brokers' logs and quotas
	DialTimeout    time.Duration `setting:"-"` // maximum time to connect, including TLS and SASL: more than a busy network needs
	MetadataMaxAge time.Duration `setting:"-"` // age at which partitions and leaders are refreshed: not so often that it burdens brokers
	Dial           Func          `setting:"-"` // replaces the network in simulations, without TLS; nil for the network
}

// SASL configures authentication. If Mechanism is empty, there is none.
type SASL struct {
	Mechanism string `setting:"mechanism"` // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, case-insensitive
	Username  string `setting:"username"`  // user name
	Password  string `setting:"password"`  // secret; better set in the environment
}

// DefaultKafka returns the settings for a broker on this machine.
func DefaultKafka(topic string) Kafka {
	return Kafka{
		Brokers: []string{"127.0.0.1:9092"}, Topic: topic, ClientID: "trafficd",
		DialTimeout: 5 * time.Second, RequestTimeout: 30 * time.Second, MetadataMaxAge: 5 * time.Second,
	}
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// Validate reports every invalid key with the reason for its bound.
func (k Kafka) Validate(section string) error {
	return errors.Join(
		settings.Check(len(k.Brokers) > 0, "%sbrokers must name at least one broker", section),
		settings.Check(topicName.MatchString(k.Topic) && k.Topic != "." && k.Topic != "..",
			"%stopic must be 1 to 249 characters A-Za-z0-9._-: brokers accept no other name", section),
		settings.Within(section+"request_timeout", k.RequestTimeout, 100*time.Millisecond, 5*time.Minute,
			"a shorter timeout fails on a busy broker; a longer one waits for a dead one"),
		k.TLS.validate(section+"tls."), k.SASL.validate(section+"sasl."),
	)
}

func (s SASL) validate(section string) error {
	switch strings.ToLower(s.Mechanism) {
	case "":
		return settings.Check(s == SASL{}, "%smechanism must be set if username or password is set, which have no effect otherwise", section)
	case "plain", "scram-sha-256", "scram-sha-512":
		return settings.Check(s.Username != "" && s.Password != "", "%susername and %spassword must be set for %s", section, section, s.Mechanism)
	}
	return fmt.Errorf("%smechanism is %q, must be plain, scram-sha-256 or scram-sha-512", section, s.Mechanism)
}

// Transport returns a transport for requests about the topic. It reads the TLS files, but does not
// connect. An error starts with the key of a setting. The caller must call CloseIdleConnections
// when it no longer uses the transport. As a side effect, it limits the size of record batches in
// the whole process.
func (k Kafka) Transport() (*Transport, error) {
	if _, err := k.TLS.Config("tls."); err != nil {
		return nil, err
	}
	mechanism, err := k.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	boundCodecs()
	return &Transport{&kafka.Transport{
		Dial:           k.connect(k.TLS.dialer(k.DialTimeout, k.Dial)),
		DialTimeout:    k.DialTimeout,
		MetadataTTL:    k.MetadataMaxAge,
		MetadataTopics: []string{k.Topic}, // no metadata of other topics
		ClientID:       k.ClientID,
		SASL:           mechanism,
	}}, nil
}

// Transport is kafka-go's transport, except that it checks which partition the response to a
// produce request is about.
type Transport struct{ *kafka.Transport }

// RoundTrip implements kafka.RoundTripper.
func (t *Transport) RoundTrip(ctx context.Context, address net.Addr, request kafka.Request) (kafka.Response, error) {
	response, err := t.Transport.RoundTrip(ctx, address, request)
	if produced, ok := response.(*produce.Response); ok && err == nil {
		err = checkProduced(request, produced)
	}
	return response, err
}

// checkProduced returns an error if a response is not about the partition of the request. kafka-go
// sends one partition in a request, and returns the first result of any partition.
func checkProduced(request kafka.Request, response *produce.Response) error {
	var topic string
	var partition int32
	switch r := request.(type) {
	case *produce.Request:
		topic, partition = r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition
	case *rawproduce.Request:
		topic, partition = r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition
	}
	if len(response.Topics) == 1 && response.Topics[0].Topic == topic {
		if results := response.Topics[0].Partitions; len(results) == 1 && results[0].Partition == partition {
			return nil
		}
	}
	return fmt.Errorf("invalid response of the broker to a Produce request: it is not about partition %d of topic %q", partition, topic)
}

// Addr returns the address of any of the brokers, for a client with the Transport.
func (k Kafka) Addr() net.Addr { return anyBroker(k.Brokers) }

// Dialer returns a dialer that connects like the Transport t, for consumer groups, which cannot use
// a Transport.
func (k Kafka) Dialer(t *Transport) *kafka.Dialer {
	return &kafka.Dialer{DialFunc: t.Dial, ClientID: k.ClientID, Timeout: k.DialTimeout, SASLMechanism: t.SASL}
}

// Func connects to an address, like [net.Dialer.DialContext].
type Func func(ctx context.Context, network, address string) (net.Conn, error)

// connect returns a function that connects to a broker with dial, or to any of them if the address
// is Bootstrap.
func (k Kafka) connect(dial Func) Func {
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { // kafka-go sets no deadline for SASL; it cancels ctx when the connection is ready
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				_ = c.Close()
			}
		})
		return &brokerConn{Conn: c}, nil
	}
	bootstrap := newBootstrap(k.Brokers, connect)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == Bootstrap {
			return bootstrap.dial(ctx)
		}
		return connect(ctx, network, address)
	}
}

func (s SASL) mechanism() (m sasl.Mechanism, err error) {
	switch strings.ToLower(s.Mechanism) {
	case "plain":
		m = plain.Mechanism{Username: s.Username, Password: s.Password}
	case "scram-sha-256":
		m, err = scram.Mechanism(scram.SHA256, s.Username, s.Password)
	case "scram-sha-512":
		m, err = scram.Mechanism(scram.SHA512, s.Username, s.Password)
	}
	if err != nil {
		return nil, fmt.Errorf("sasl.username and sasl.password: cannot use them with %s: %w", s.Mechanism, err)
	}
	return m, nil
}

// Partitions returns the cluster's ID and the topic's partitions, at least one, in ascending order.
func Partitions(ctx context.Context, client *kafka.Client, topic string) (cluster string, partitions []int, err error) {
	m, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err == nil && len(m.Topics) == 1 {
		err = m.Topics[0].Error
		for _, p := range m.Topics[0].Partitions {
			partitions = append(partitions, p.ID)
		}
	}
	if err == nil && len(partitions) == 0 {
		err = kafka.UnknownTopicOrPartition
	}
	if err != nil {
		return "", nil, fmt.Errorf("cannot read the partitions of topic %q from %v: %w", topic, client.Addr, err)
	}
	slices.Sort(partitions)
	return m.ClusterID, partitions, nil
}

// Offset returns an offset of a partition: for kafka.FirstOffset, the oldest one; for
// kafka.LastOffset, the one after the newest record that readers can see. Any other which is a Unix
// time in milliseconds, for which Offset returns the offset of the first record that is not
// earlier, or -1 if there is none.
//
// It requests one partition at a time: kafka-go returns offset 0 for partitions that are missing
// from a response.
func Offset(ctx context.Context, client *kafka.Client, topic string, partition int, which int64) (int64, error) {
	r, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {{Partition: partition, Timestamp: which}}},
	})
	var offsets []kafka.PartitionOffsets
	if err == nil {
		offsets = r.Topics[topic]
		if len(offsets) != 1 || offsets[0].Partition != partition {
			err = errors.New("the response does not contain the requested partition")
		} else {
			err = offsets[0].Error
		}
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read the offsets of partition %d of topic %q: %w", partition, topic, err)
	}
	offset := max(offsets[0].FirstOffset, offsets[0].LastOffset)
	for found := range offsets[0].Offsets { // only if which is a time
		offset = found
	}
	return offset, nil
}

// CreateTopic creates a topic unless it exists, and reports whether it did. With dryRun, it only
// checks whether the topic could be created.
func CreateTopic(ctx context.Context, client *kafka.Client, topic kafka.TopicConfig, dryRun bool) (created bool, err error) {
	r, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}, ValidateOnly: dryRun})
	if err == nil {
		err = r.Errors[topic.Topic]
	}
	switch {
	case err == nil:
		return !dryRun, nil
	case errors.Is(err, kafka.TopicAlreadyExists):
		return false, nil
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		return false, fmt.Errorf("cannot create topic %q: %w; grant Create on it", topic.Topic, err)
	}
	return false, fmt.Errorf("cannot create topic %q: %w", topic.Topic, err)
}
