package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

const (
	// forecastPath is that of the contract 2.
	forecastPath = "/mlf/v1/forecast/realtime"

	forecastTopic = "forecasts"
	forecastsFile = "forecasts.pb"

	// New forecasts come with each period, for two hours ahead.
	forecastStep    = 15 * time.Minute
	forecastPeriods = 8
)

// makeForecasts puts forecasts into a compacted topic, which the daemon reads
// from its start: so the layer is there soon after it.
func (q *quickstart) makeForecasts(ctx context.Context) error {
	say("publishing forecasts of %s", q.source.streets())
	if err := createCompacted(ctx, q.Kafka.Brokers, forecastTopic); err != nil {
		return err
	}
	return q.publishForecasts(ctx)
}

// publishForecasts makes forecasts from now on and replaces those of before.
func (q *quickstart) publishForecasts(ctx context.Context) error {
	q.forecast = time.Now()
	generate := []string{
		"forecast", "generate", "--periods", strconv.Itoa(forecastPeriods), "--step", forecastStep.String(),
		"--output", q.path(forecastsFile),
	}
	if q.source.codes != "" {
		generate = append(generate, "--codes", q.source.codes)
	}
	if _, err := output(ctx, q.bin("trafficctl"), generate...); err != nil {
		return err
	}
	_, err := output(ctx, q.bin("trafficctl"), "forecast", "publish", q.path(forecastsFile), "--quiet", "--tombstone-missing",
		"--brokers", q.Kafka.Brokers[0], "--topic", forecastTopic)
	return err
}

// keepForecasts publishes again with every period, so that the layer stays alive
// as long as everything runs. A failure is no reason to end.
func (q *quickstart) keepForecasts(ctx context.Context) {
	if time.Since(q.forecast) < forecastStep {
		return
	}
	if err := q.publishForecasts(ctx); err != nil && ctx.Err() == nil {
		say("cannot publish new forecasts, trying again in %s: %v", forecastStep, err)
	}
}

// createCompacted makes a topic that keeps the last record of each key. One that
// is there already is fine.
func createCompacted(ctx context.Context, brokers []string, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return fmt.Errorf("cannot make the topic %s: %w", topic, err)
	}
	defer client.Close()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, -1
	compact := kmsg.NewCreateTopicsRequestTopicConfig()
	compact.Name, compact.Value = "cleanup.policy", kmsg.StringPtr("compact")
	wanted.Configs = append(wanted.Configs, compact)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, wanted)
	answer, err := req.RequestWith(ctx, client)
	for i := 0; err == nil && i < len(answer.Topics); i++ {
		err = kerr.ErrorForCode(answer.Topics[i].ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("cannot make the topic %s: %w", topic, err)
	}
	return nil
}

// served is the layer as a map client gets it.
type served struct {
	streets, plain, packed int // plain and packed are bytes
	age                    string
}

func (s served) String() string {
	return fmt.Sprintf("%s streets, %s bytes (%s as gzip), %s s old",
		thousands(uint64(s.streets)), thousands(uint64(s.plain)), thousands(uint64(s.packed)), s.age)
}

// awaitLayer waits until the layer is served.
func (q *quickstart) awaitLayer(ctx context.Context) (found served, err error) {
	deadline := time.Now().Add(30 * time.Second)
	err = q.until(ctx, func() (bool, error) {
		var err error
		if found, err = layer(ctx, "http://"+q.API+forecastPath, q.key); err == nil {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("the forecast layer does not come: %w; see %s", err, q.short(q.path("trafficd.log")))
		}
		return false, nil
	})
	return found, err
}

// layer gets the layer, decodes it, and gets it again as browsers do.
func layer(ctx context.Context, url, key string) (served, error) {
	plain, header, err := get(ctx, url, key, "identity")
	if err != nil {
		return served{}, err
	}
	packed, _, err := get(ctx, url, key, "gzip")
	if err != nil {
		return served{}, err
	}
	var response trafficdv1.StreetForecastResponse
	if err := proto.Unmarshal(plain, &response); err != nil {
		return served{}, fmt.Errorf("cannot decode the forecast layer: %w", err)
	}
	return served{len(response.StreetForecast), len(plain), len(packed), header.Get("Forecast-Age")}, nil
}

func get(ctx context.Context, url, key, encoding string) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "apiKey "+key)
	req.Header.Set("Accept-Encoding", encoding)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.200s", url, r.Status, body)
	}
	return body, r.Header, err
}
