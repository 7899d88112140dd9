package forecasts

import (
	"errors"
	"fmt"
	"time"
)

// Validate returns all errors, joined; each names its key. Of the feeds' sections it checks only the
// one in use.
func (c Config) Validate() error {
	general := errors.Join(
		check(c.MaxSpeed > 0 && c.MaxSpeed <= HighestMaxSpeed, "max_speed", fmt.Sprintf("is %g, must be over 0 and at most %g", c.MaxSpeed, HighestMaxSpeed)),
		between("max_bytes", c.MaxBytes, 1<<10, 4<<30, "files and answers are read into memory whole"),
	)
	switch c.Feed {
	case "":
		return general
	case FeedKafka:
		return errors.Join(general, c.Kafka.Validate())
	case FeedFile:
		return errors.Join(general, c.File.validate())
	case FeedClickHouse:
		return errors.Join(general,
			c.ClickHouse.Validate("clickhouse."),
			between("clickhouse.interval", c.ClickHouse.Interval, time.Second, 24*time.Hour, "shorter burdens the server, longer delays the map"),
			between("clickhouse.timeout", c.ClickHouse.Timeout, time.Second, 10*time.Minute, "shorter gives up on a busy server, longer stalls on a dead one"),
		)
	}
	return errors.Join(general, check(false, "feed", fmt.Sprintf("is %q, must be kafka, file, clickhouse or empty (no forecasts)", c.Feed)))
}

// Validate reports every invalid key with the reason for its bound.
func (c KafkaConfig) Validate() error {
	return errors.Join(
		c.Kafka.Validate("kafka."),
		between("kafka.interval", c.Interval, 10*time.Millisecond, time.Hour, "every poll costs a request per partition; longer ones delay the map"),
		between("kafka.fetch_bytes", c.FetchBytes, 16<<10, 256<<20, "smaller ones spend more on requests than on records, larger ones only take memory"),
	)
}

func (f FileConfig) validate() error {
	known := f.Format == "" || f.Format == FormatProtobuf || f.Format == FormatJSON || f.Format == FormatNDJSON
	return errors.Join(
		check(f.Path != "", "file.path", "is empty, must be the file with the forecasts"),
		check(known, "file.format", fmt.Sprintf("is %q, must be protobuf, json, ndjson or empty (by the file's name)", f.Format)),
		between("file.recheck", f.Recheck, time.Second, time.Hour, "longer delays changes on network file systems"),
		between("file.settle", f.Settle, 10*time.Millisecond, time.Minute, "shorter reads half-written files, longer delays new forecasts"),
	)
}

func check(ok bool, key, reason string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s %s", key, reason)
}

func between[T int | int64 | time.Duration](key string, v, low, high T, reason string) error {
	return check(v >= low && v <= high, key, fmt.Sprintf("is %v, must be between %v and %v: %s", v, low, high, reason))
}
