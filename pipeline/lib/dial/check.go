package dial

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// maxClockDifference is far more than the difference between machines with a working NTP client.
const maxClockDifference = 5 * time.Second

// checkTimeout is the maximum time for all requests to a server.
const checkTimeout = 20 * time.Second

// Check connects to a server. It returns an error if that fails, or if the server's clock differs
// too much from this machine's. The error starts with a setting's key; key is that of the address.
func (c ClickHouse) Check(ctx context.Context, key, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := c.Open(&clickhouse.Options{Addr: []string{address}, DialTimeout: timeout, ReadTimeout: timeout})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var server time.Time
	before := time.Now()
	err = conn.QueryRow(ctx, "SELECT now64(3, 'UTC')").Scan(&server)
	var exception *clickhouse.Exception
	switch {
	case err == nil:
		return checkClock(key, address, server, before, time.Now())
	case errors.As(err, &exception) && slices.Contains([]int32{192, 193, 194, 195, 516}, exception.Code):
		return fmt.Errorf("username and password: %s rejects user %q: %w", address, c.Username, err)
	case IsTLS(err):
		return fmt.Errorf("tls.enabled, tls.ca, tls.cert and tls.server_name: cannot establish TLS with %s: %w", address, err)
	case errors.As(err, &exception) && exception.Code == 81:
		return fmt.Errorf("database: %w", err)
	}
	return fmt.Errorf("%s: cannot connect to %s: %w; check that the server is running", key, address, err)
}

// Check returns an error if the TLS files cannot be read or, if deep, if the server cannot be used.
// It does not run the query.
func (q ClickHouseQuery) Check(ctx context.Context, deep bool) error {
	if err := q.TLS.CheckFiles("tls."); err != nil || !deep {
		return err
	}
	return q.ClickHouse.Check(ctx, "address", q.Address, q.Timeout)
}

// checkClock returns an error if the server's clock, which was read between before and after,
// differs by more than maxClockDifference from this machine's.
func checkClock(key, address string, server, before, after time.Time) error {
	ahead := max(server.Sub(after), 0) + min(server.Sub(before), 0)
	if ahead.Abs() <= maxClockDifference {
		return nil
	}
	return fmt.Errorf("%s: the clock of %s differs by %v from this machine's: synchronise both with NTP",
		key, address, ahead.Round(time.Second))
}

// IsTLS reports whether err means that the certificate of the client or the server was rejected,
// that the server does not use TLS, or that a file of the TLS settings cannot be used.
func IsTLS(err error) bool {
	var operation *net.OpError
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(filesError)) || errors.As(err, &operation) && operation.Op == "remote error" // a TLS alert, see crypto/tls
}

// Topic describes a topic as the brokers report it.
type Topic struct {
	Name       string
	Brokers    int // number of brokers in the cluster
	Partitions []kafka.Partition
	Config     map[string]string // nil if it cannot be read
	ConfigErr  error             // why Config is nil
}

// Errorf returns an error about the topic. It starts with "topic", the key of the setting.
func (t Topic) Errorf(format string, args ...any) error {
	return fmt.Errorf("topic: topic %q "+format, append([]any{t.Name}, args...)...)
}

// Number returns a numeric setting of the topic, or fallback if it is unknown.
func (t Topic) Number(name string, fallback int) int {
	if n, err := strconv.Atoi(t.Config[name]); err == nil {
		return n
	}
	return fallback
}

// InSync returns the topic's replication factor and its min.insync.replicas. If the latter is
// unknown, least is an acceptable value. The topic must have partitions.
func (t Topic) InSync() (replicas, least int) {
	replicas = len(t.Partitions[0].Replicas)
	return replicas, t.Number("min.insync.replicas", min(2, replicas))
}

// CheckDurability returns an error if the topic rejects all records, or if the loss of one broker
// or compaction can remove acknowledged records. The topic must have partitions.
func (t Topic) CheckDurability() error {
	var errs []error
	switch replicas, least := t.InSync(); {
	case replicas < least:
		errs = append(errs, t.Errorf("has replication factor %d, below its min.insync.replicas %d: no record can be written", replicas, least))
	case t.Brokers > 1 && least < 2:
		errs = append(errs, t.Errorf("has replication factor %d and min.insync.replicas %d: the loss of one broker can lose "+
			"acknowledged measurements; use replication factor 3 and min.insync.replicas 2", replicas, least))
	}
	if policy := t.Config["cleanup.policy"]; strings.Contains(policy, "compact") {
		errs = append(errs, t.Errorf("has cleanup.policy %s, which keeps only the latest record of each key: set it to delete", policy))
	}
	return errors.Join(errs...)
}

// Check returns an error if the TLS files cannot be read or, if deep, if any broker cannot be used,
// including those that the cluster advertises. Each joined error starts with a setting's key. t
// describes the topic; if it has no partitions, the topic does not exist, which is not an error.
func (k Kafka) Check(ctx context.Context, section string, deep bool) (t Topic, err error) {
	t.Name = k.Topic
	transport, err := k.Transport()
	if err != nil {
		return t, fmt.Errorf("%s%w", section, err)
	}
	if err := k.TLS.CheckFiles(section + "tls."); err != nil || !deep {
		return t, err
	}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Timeout: k.RequestTimeout, Transport: transport}
	var errs []error
	asked := map[string]bool{}
	for queue := slices.Clone(k.Brokers); len(queue) > 0; queue = queue[1:] {
		address := queue[0]
		if asked[address] {
			continue
		}
		asked[address] = true
		response, err := client.Metadata(ctx, &kafka.MetadataRequest{Addr: kafka.TCP(address), Topics: []string{k.Topic}})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", section, k.diagnose(address, err)))
			continue
		}
		client.Addr = kafka.TCP(address)
		for _, b := range response.Brokers {
			queue = append(queue, net.JoinHostPort(b.Host, strconv.Itoa(b.Port)))
		}
	}
	if client.Addr == nil {
		return t, errors.Join(errs...)
	}
	if t, err = DescribeTopic(ctx, client, k.Topic); err != nil {
		errs = append(errs, fmt.Errorf("%stopic: %w", section, err))
	}
	for _, p := range t.Partitions {
		if p.Leader == (kafka.Broker{}) {
			errs = append(errs, fmt.Errorf("%stopic: partition %d of topic %q has no leader: check the brokers %v",
				section, p.ID, k.Topic, slices.Sorted(maps.Keys(asked))))
		}
	}
	return t, errors.Join(errs...)
}

// DescribeTopic returns a description of the topic. If it has no partitions, the topic does not
// exist, which is not an error.
func DescribeTopic(ctx context.Context, client *kafka.Client, topic string) (Topic, error) {
	t := Topic{Name: topic}
	m, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err == nil && len(m.Topics) == 1 {
		t.Brokers, t.Partitions, err = len(m.Brokers), m.Topics[0].Partitions, m.Topics[0].Error
	}
	switch {
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		return t, fmt.Errorf("cannot describe topic %q: %w; grant Describe on it", topic, err)
	case err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition):
		return t, fmt.Errorf("cannot describe topic %q: %w", topic, err)
	}
	if len(t.Partitions) > 0 {
		t.Config, t.ConfigErr = topicConfig(ctx, client, topic)
	}
	return t, nil
}

// CheckPermissions returns an error if the user may not write to the topic or read it. The record
// batch that it sends is empty: brokers check permissions before they reject the request as
// invalid.
func CheckPermissions(ctx context.Context, client *kafka.Client, topic string) error {
	produced, writeErr := client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll, RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(make([]byte, 4))},
	})
	if writeErr == nil {
		writeErr = produced.Error
	}
	fetched, readErr := client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, MinBytes: 1, MaxBytes: 1})
	if readErr == nil {
		readErr = fetched.Error
	}
	var errs []error
	if errors.Is(writeErr, kafka.TopicAuthorizationFailed) {
		errs = append(errs, fmt.Errorf("sasl.username: cannot write to topic %q: %w; grant Write on it", topic, writeErr))
	}
	if errors.Is(readErr, kafka.TopicAuthorizationFailed) {
		errs = append(errs, fmt.Errorf("sasl.username: cannot read topic %q: %w; grant Read on it", topic, readErr))
	}
	return errors.Join(errs...)
}

// diagnose prefixes the error of a failed connection with the settings that may have caused it.
func (k Kafka) diagnose(address string, err error) error {
	switch {
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		return fmt.Errorf("sasl.username and sasl.password: %s rejects user %q: %w", address, k.SASL.Username, err)
	case errors.Is(err, kafka.UnsupportedSASLMechanism), errors.Is(err, kafka.IllegalSASLState):
		return fmt.Errorf("sasl.mechanism: %s does not support %q: %w", address, k.SASL.Mechanism, err)
	case IsTLS(err):
		return fmt.Errorf("tls.enabled, tls.ca, tls.cert and tls.server_name: cannot establish TLS with %s: %w", address, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("sasl and tls.enabled: %s closes the connection: %w; check the password, and that the listener uses these settings",
			address, err)
	case slices.Contains(k.Brokers, address):
		return fmt.Errorf("brokers: cannot connect to %s: %w; check that it is a broker whose listener uses the same tls and sasl settings",
			address, err)
	}
	return fmt.Errorf("brokers: cannot connect to %s, which the cluster advertises: %w; check advertised.listeners of the brokers",
		address, err)
}

// topicConfig returns the settings of a topic.
func topicConfig(ctx context.Context, client *kafka.Client, topic string) (map[string]string, error) {
	r, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	if err == nil && len(r.Resources) != 1 {
		err = errors.New("the response does not contain the topic")
	}
	if err == nil {
		err = r.Resources[0].Error
	}
	switch {
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		return nil, fmt.Errorf("cannot read the settings of topic %q: %w; grant DescribeConfigs on it", topic, err)
	case err != nil:
		return nil, fmt.Errorf("cannot read the settings of topic %q: %w", topic, err)
	}
	config := map[string]string{}
	for _, entry := range r.Resources[0].ConfigEntries {
		config[entry.ConfigName] = entry.ConfigValue
	}
	return config, nil
}
