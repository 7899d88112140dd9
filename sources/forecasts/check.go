package forecasts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Check reads the feed once if it is a file or deep is true, and reports problems with it. Each
// joined error starts with a setting's key. If the configuration is invalid, the feed is not read.
func (c Config) Check(ctx context.Context, deep bool) error {
	deep = (deep || c.Feed == FeedFile) && c.Validate() == nil
	switch c.Feed {
	case FeedKafka:
		if err := CheckTopic(ctx, c.Kafka, deep); err != nil {
			return err
		}
	case FeedFile:
		if err := watch.CheckReadable(c.File.Path); err != nil {
			return fmt.Errorf("file.path: %w", err)
		}
	case FeedClickHouse:
		if err := c.ClickHouse.Check(ctx, deep); err != nil {
			return fmt.Errorf("clickhouse.%w", err)
		}
	}
	if !deep || c.Feed == "" {
		return nil
	}
	f, err := New(c, discard{}, zerolog.Nop())
	if err != nil {
		return err
	}
	defer f.feed.close()
	if file, ok := f.feed.(*fileFeed); ok {
		file.file = watch.NewFile(c.File.Path, 0, c.MaxBytes) // reads a new file too
	}
	_, err = f.feed.check(ctx)
	if err == nil || errors.Is(err, watch.ErrUnchanged) || errors.Is(err, errTopicWritten) {
		return nil
	}
	return fmt.Errorf("%s: %w", c.Feed, err)
}

// CheckTopic is like dial.Kafka.Check with section "kafka.", but also returns an error if the topic
// does not exist or is not compacted.
func CheckTopic(ctx context.Context, k dial.Kafka, deep bool) error {
	t, err := k.Check(ctx, "kafka.", deep)
	policy := t.Config["cleanup.policy"]
	switch {
	case err != nil || !deep:
		return err
	case len(t.Partitions) == 0:
		return fmt.Errorf("kafka.%w", t.Errorf("does not exist: create it with cleanup.policy compact"))
	case policy != "" && !strings.Contains(policy, "compact"):
		return fmt.Errorf("kafka.%w", t.Errorf("has cleanup.policy %s, which deletes forecasts by age: set it to compact", policy))
	}
	return nil
}

// discard is a Layer that ignores all updates.
type discard struct{}

func (discard) Put(*pb.StreetForecast) {}
func (discard) Remove(int32, int32)    {}
func (discard) Clear()                 {}
func (discard) Publish(time.Time)      {}
func (discard) Confirm(time.Time)      {}
