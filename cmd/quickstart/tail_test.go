package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trafficd/cmd/devstores/stores"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// tailed runs tailTopic and returns its lines. When the test ends, tailTopic is cancelled and must return.
func tailed(t *testing.T, brokers []string, from string) *bufio.Scanner {
	t.Helper()
	start, err := startOf(from)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- tailTopic(ctx, in, t.Output(), brokers, start); in.Close() }()
	t.Cleanup(func() {
		interrupt()
		go io.Copy(io.Discard, out) // returns when tailTopic does
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return bufio.NewScanner(out)
}

// line returns the next line.
func line(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	require.True(t, lines.Scan(), "tail exited")
	return lines.Text()
}

func produce(t *testing.T, brokers []string, values ...[]byte) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer client.Close()
	for _, value := range values {
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Value: value}).FirstErr())
	}
}

func value(t *testing.T, detector string) []byte {
	t.Helper()
	text, err := proto.Marshal(&trafficdv1.Measurement{
		ProductInstance: "quickstart", DetectorCode: detector, MeasureTypeCode: "speed", Value: 50.5,
		TimestampFrom: timestamppb.New(time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC)),
		TimestampTo:   timestamppb.New(time.Date(2026, 7, 1, 6, 5, 0, 0, time.UTC)),
	})
	require.NoError(t, err)
	return text
}

func TestTail(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic(topic, 1))
	produce(t, k.Brokers, value(t, "before"), []byte("no protobuf"))

	lines := tailed(t, k.Brokers, "start")
	where, text, _ := strings.Cut(line(t, lines), " ")
	require.Equal(t, "0/0", where)
	var shown map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &shown))
	require.Equal(t, map[string]any{
		"productInstance": "quickstart", "detectorCode": "before", "measureTypeCode": "speed", "value": 50.5,
		"timestampFrom": "2026-07-01T06:00:00Z", "timestampTo": "2026-07-01T06:05:00Z",
	}, shown)
	require.Contains(t, line(t, lines), "0/1 is not a measurement")
	produce(t, k.Brokers, value(t, "later"))
	require.Contains(t, line(t, lines), `"later"`)

	// From the end: the client does not report when it has seeked, so the test produces until a record is printed.
	lines = tailed(t, k.Brokers, "end")
	first := make(chan string, 1)
	go func() { lines.Scan(); first <- lines.Text() }()
	for n := 0; ; n++ {
		produce(t, k.Brokers, value(t, fmt.Sprintf("now%d", n)))
		select {
		case text := <-first:
			require.Contains(t, text, `"now`)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestTailErrors(t *testing.T) {
	_, err := startOf("middle")
	require.ErrorContains(t, err, `--from "middle": must be start or end`)
	err = tailTopic(t.Context(), io.Discard, io.Discard, []string{"127.0.0.1:1"}, kgo.NewOffset())
	require.ErrorContains(t, err, "cannot reach a broker at 127.0.0.1:1 (--brokers)")
}
