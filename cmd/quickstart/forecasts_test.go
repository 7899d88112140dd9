package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/devstores/stores"
)

// New forecasts come when the last ones are a period old, not before; a failure
// waits for the next period.
func TestKeepForecasts(t *testing.T) {
	q := &quickstart{root: t.TempDir(), options: options{dir: t.TempDir()}}
	q.Kafka.Brokers = []string{"127.0.0.1:1"}
	q.source.codes = "lines.txt"
	calls := func() []string {
		text, _ := os.ReadFile(q.path("calls"))
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	require.NoError(t, os.Mkdir(filepath.Join(q.root, "bin"), 0o755))
	script := "#!/bin/sh\necho \"$@\" >>" + q.path("calls") + "\n"
	require.NoError(t, os.WriteFile(q.bin("trafficctl"), []byte(script), 0o755))

	q.keepForecasts(t.Context())
	require.Equal(t, []string{
		"forecast generate --periods 8 --step 15m0s --output " + q.path(forecastsFile) + " --codes lines.txt",
		"forecast publish " + q.path(forecastsFile) + " --quiet --tombstone-missing --brokers 127.0.0.1:1 --topic forecasts",
	}, calls())
	q.keepForecasts(t.Context())
	require.Len(t, calls(), 2)

	require.NoError(t, os.WriteFile(q.bin("trafficctl"), []byte(script+"exit 1\n"), 0o755))
	q.forecast = time.Now().Add(-forecastStep)
	q.keepForecasts(t.Context())
	q.keepForecasts(t.Context())
	require.Len(t, calls(), 3)
}

func TestCreateCompacted(t *testing.T) {
	k := stores.StartKafka(t)
	require.NoError(t, createCompacted(t.Context(), k.Brokers, forecastTopic))
	require.NoError(t, createCompacted(t.Context(), k.Brokers, forecastTopic), "it is there already")

	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.ConfigNames = kmsg.ConfigResourceTypeTopic, forecastTopic, []string{"cleanup.policy"}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, resource)
	answer, err := req.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, answer.Resources, 1)
	require.Len(t, answer.Resources[0].Configs, 1)
	require.Equal(t, "compact", *answer.Resources[0].Configs[0].Value)
}
