package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// counts is what stands in the stores, asked of the stores themselves.
type counts struct {
	Inserted uint64 // rows of all parts that inserts made, as long as the server's log reaches back
	Final    uint64 // count() FINAL: a measurement that was sent again replaces its earlier self
	Records  int64  // in the topic, over all partitions
}

func (c counts) minus(o counts) counts {
	return counts{c.Inserted - o.Inserted, c.Final - o.Final, c.Records - o.Records}
}

// count asks both stores; a table or topic that is not there yet counts 0.
func count(ctx context.Context, a addresses) (counts, error) {
	var c counts
	ch := clickhouse{url: "http://" + a.ClickHouse.HTTP}
	exists, err := ch.number(ctx, "EXISTS "+table)
	if err != nil {
		return c, err
	}
	if exists == 1 {
		if err := c.ask(ctx, ch); err != nil {
			return c, err
		}
	}
	c.Records, err = records(ctx, a.Kafka.Brokers, topic)
	return c, err
}

// ask fills in what the archive holds. The server writes system.part_log about
// once a second, and makes it with the first insert; SYSTEM FLUSH LOGS would wait
// for ever before that.
func (c *counts) ask(ctx context.Context, ch clickhouse) (err error) {
	logged, err := ch.number(ctx, "EXISTS system.part_log")
	if err != nil {
		return err
	}
	if logged == 1 {
		c.Inserted, err = ch.number(ctx, "SELECT sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND error = 0"+
			" AND database = '"+database+"' AND table = 'measurements'")
		if err != nil {
			return err
		}
	}
	c.Final, err = ch.number(ctx, "SELECT count() FROM "+table+" FINAL")
	return err
}

// clickhouse is the HTTP interface of the server.
type clickhouse struct{ url string }

func (c clickhouse) query(ctx context.Context, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/?"+url.Values{"database": {"default"}}.Encode(), strings.NewReader(sql))
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot ask ClickHouse: %w", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("cannot ask ClickHouse: %w", err)
	}
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("cannot ask ClickHouse %q: %s", sql, strings.TrimSpace(string(body)))
	}
	return strings.TrimSpace(string(body)), nil
}

func (c clickhouse) number(ctx context.Context, sql string) (uint64, error) {
	text, err := c.query(ctx, sql)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read ClickHouse's answer to %q: %w", sql, err)
	}
	return n, nil
}

// records counts a topic by its offsets, with a client that is not the daemon's.
func records(ctx context.Context, brokers []string, topic string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return 0, fmt.Errorf("cannot ask Kafka: %w", err)
	}
	defer client.Close()
	partitions, err := partitionsOf(ctx, client, topic)
	if err != nil || partitions == 0 {
		return 0, err
	}
	end, err := offsets(ctx, client, topic, partitions, -1)
	if err != nil {
		return 0, err
	}
	start, err := offsets(ctx, client, topic, partitions, -2)
	return end - start, err
}

func partitionsOf(ctx context.Context, client *kgo.Client, topic string) (int, error) {
	req := kmsg.NewMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	req.AllowAutoTopicCreation = false
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("cannot ask Kafka for topic %s: %w", topic, err)
	}
	return len(answer.Topics[0].Partitions), nil
}

// offsets sums the offsets of all partitions; at is -1 for their ends, -2 for
// their starts.
func offsets(ctx context.Context, client *kgo.Client, topic string, partitions int, at int64) (int64, error) {
	req := kmsg.NewListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range partitions {
		x := kmsg.NewListOffsetsRequestTopicPartition()
		x.Partition, x.Timestamp = int32(p), at
		t.Partitions = append(t.Partitions, x)
	}
	req.Topics = append(req.Topics, t)
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("cannot ask Kafka for the offsets of %s: %w", topic, err)
	}
	sum := int64(0)
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return 0, fmt.Errorf("cannot ask Kafka for the offsets of %s/%d: error %d", topic, p.Partition, p.ErrorCode)
			}
			sum += p.Offset
		}
	}
	return sum, nil
}

// scrape reads the daemon's metrics: name with labels → value.
func scrape(ctx context.Context, ops string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the metrics: %w", err)
	}
	defer r.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			values[line[:i]] = v
		}
	}
	return values, nil
}
