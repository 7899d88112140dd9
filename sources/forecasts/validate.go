package forecasts

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Validate names every key that is wrong, and why it is. Of the feeds' own
// sections only that of the feed in use is looked at.
func (c Config) Validate() error {
	bytes := between("forecasts.max_bytes", c.MaxBytes, 1<<10, 4<<30, "files and answers are read into memory whole")
	switch c.Feed {
	case "":
		return bytes
	case FeedKafka:
		return errors.Join(bytes, c.Kafka.Validate())
	case FeedFile:
		return errors.Join(bytes, c.File.validate())
	case FeedClickHouse:
		return errors.Join(bytes, c.ClickHouse.validate())
	}
	return errors.Join(bytes, check(false, "forecasts.feed", fmt.Sprintf("is %q: known are kafka, file and clickhouse; empty means no forecasts", c.Feed)))
}

// Validate names every key that is wrong, and why it is.
func (c KafkaConfig) Validate() error {
	return errors.Join(
		check(len(c.Brokers) > 0, "forecasts.kafka.brokers", "is empty: there is nobody to ask for the topic's leaders"),
		check(validTopic(c.Topic), "forecasts.kafka.topic", "has to be 1 to 249 of A-Za-z0-9._-, as brokers take nothing else"),
		between("forecasts.kafka.interval", c.Interval, 10*time.Millisecond, time.Hour, "each poll costs a request for every partition; with longer ones the map is behind"),
		between("forecasts.kafka.fetch_bytes", c.FetchBytes, 16<<10, 256<<20, "smaller ones spend more on requests than on records, larger ones only take memory"),
		between("forecasts.kafka.dial_timeout", c.DialTimeout, 100*time.Millisecond, time.Minute, "shorter fails on a busy network, longer keeps the other brokers waiting"),
		between("forecasts.kafka.request_timeout", c.RequestTimeout, 100*time.Millisecond, 5*time.Minute, "shorter gives up on brokers that are busy, longer stalls on a dead one"),
		between("forecasts.kafka.metadata_max_age", c.MetadataMaxAge, 100*time.Millisecond, time.Hour, "shorter burdens the brokers, longer asks a leader of the past"),
		c.TLS.validate(), c.SASL.validate(),
	)
}

func (t TLS) validate() error {
	return errors.Join(
		check((t.Cert == "") == (t.Key == ""), "forecasts.kafka.tls.cert and forecasts.kafka.tls.key", "belong together: set both or neither"),
		check(t.Enabled || t == TLS{}, "forecasts.kafka.tls.enabled", "is false while other keys of forecasts.kafka.tls are set: they would have no effect"),
	)
}

func (s SASL) validate() error {
	switch s.Mechanism {
	case "":
		return check(s == SASL{}, "forecasts.kafka.sasl.mechanism", "is empty while user name or password is set: they would have no effect")
	case "plain", "scram-sha-256", "scram-sha-512":
		return check(s.Username != "" && s.Password != "", "forecasts.kafka.sasl.username and forecasts.kafka.sasl.password", "have to be set for "+s.Mechanism)
	}
	return check(false, "forecasts.kafka.sasl.mechanism", fmt.Sprintf("is %q: known are plain, scram-sha-256 and scram-sha-512", s.Mechanism))
}

func (f FileConfig) validate() error {
	known := f.Format == "" || f.Format == FormatProtobuf || f.Format == FormatJSON || f.Format == FormatNDJSON
	return errors.Join(
		check(f.Path != "", "forecasts.file.path", "is empty: name the file with the forecasts"),
		check(known, "forecasts.file.format", fmt.Sprintf("is %q: known are protobuf, json and ndjson; empty goes by the file's name", f.Format)),
		between("forecasts.file.recheck", f.Recheck, time.Second, time.Hour, "each look costs a system call; with longer ones a change on a network file system waits"),
		between("forecasts.file.settle", f.Settle, 10*time.Millisecond, time.Minute, "shorter meets half-written files, longer keeps new forecasts waiting"),
	)
}

func (c ClickHouseConfig) validate() error {
	_, _, err := net.SplitHostPort(c.Address)
	return errors.Join(
		check(err == nil, "forecasts.clickhouse.address", fmt.Sprintf("is %q, want host:port of the native protocol", c.Address)),
		check(strings.TrimSpace(c.Query) != "", "forecasts.clickhouse.query", "is empty: its rows are the forecast periods"),
		between("forecasts.clickhouse.interval", c.Interval, time.Second, 24*time.Hour, "the other side has work to do as well; with longer ones the map is behind"),
		between("forecasts.clickhouse.timeout", c.Timeout, time.Second, 10*time.Minute, "shorter gives up on a server that is busy, longer stalls on a dead one"),
	)
}

func validTopic(topic string) bool {
	for _, c := range []byte(topic) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(topic) >= 1 && len(topic) <= 249 && topic != "." && topic != ".."
}

func check(ok bool, key, reason string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s %s", key, reason)
}

func between[T int | int64 | time.Duration](key string, v, low, high T, reason string) error {
	return check(v >= low && v <= high, key, fmt.Sprintf("is %v and has to be from %v to %v: %s", v, low, high, reason))
}
