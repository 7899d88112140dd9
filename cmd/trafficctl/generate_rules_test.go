package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/generate"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/sources/ingest"
)

func generateConfig(change func(*generate.Config)) generate.Config {
	cfg := generate.DefaultConfig()
	cfg.Streets, cfg.Interval = 300, 30*time.Minute
	change(&cfg)
	return cfg
}

func newNetwork(t testing.TB, cfg generate.Config) *generate.Network {
	n, err := generate.New(cfg)
	require.NoError(t, err)
	return n
}

func registryOf(t testing.TB, cfg generate.Config) [][]string {
	var b bytes.Buffer
	require.NoError(t, newNetwork(t, cfg).WriteRegistry(&b))
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	return rows
}

// TestMeasurementsAreValid checks that the daemon accepts every measurement of a registered
// detector. Measurements are ordered by time, and each interval starts a batch.
func TestMeasurementsAreValid(t *testing.T) {
	cfg := generateConfig(func(c *generate.Config) { c.AllTypes = true })
	var all []json.RawMessage
	type m struct {
		DetectorCode, MeasureTypeCode string
		TimestampFrom, TimestampTo    time.Time
		Value, Quality                float64
	}
	intervals := 0
	for item, err := range newNetwork(t, cfg).Items() {
		require.NoError(t, err)
		all = append(all, slices.Clone(item.JSON))
		if item.StartsBatch {
			intervals++
		}
		var got m
		require.NoError(t, json.Unmarshal(item.JSON, &got))
		require.Equal(t, cfg.From.Add(time.Duration(intervals-1)*cfg.Interval), got.TimestampFrom)
		require.Equal(t, cfg.Interval, got.TimestampTo.Sub(got.TimestampFrom))
		require.GreaterOrEqual(t, got.Value, 0.0)
	}
	require.Equal(t, cfg.Intervals(), intervals)
	require.Empty(t, codesOf(t, cfg, all))
	whole := float64(cfg.Streets * cfg.Intervals() * len(generate.Types))
	require.InDelta(t, 1-cfg.GapRate, float64(len(all))/whole, 0.005)
}

// TestFaults checks that every kind of fault occurs, and the daemon rejects it with the code that
// the table lists.
func TestFaults(t *testing.T) {
	cfg := generateConfig(func(c *generate.Config) { c.ErrorRate = 1 })
	var wrong []json.RawMessage
	var want []string
	for _, fault := range generate.Faults {
		item := fault.Append(nil, measurement.Fields{
			Detector: registryOf(t, cfg)[1][0], Type: "speed", Value: []byte("50"), Quality: []byte("0.9"),
			From: []byte("2026-11-01T08:00:00Z"), To: []byte("2026-11-01T08:30:00Z"),
		})
		require.True(t, json.Valid(item), "%s: %s", fault.Name, item)
		wrong, want = append(wrong, item), append(want, fault.Code)
	}
	got := codesOf(t, cfg, wrong)
	for i, fault := range generate.Faults {
		require.Equal(t, want[i], got[i], "%s: %s", fault.Name, wrong[i])
	}
	var all []json.RawMessage
	for item := range newNetwork(t, cfg).Items() {
		all = append(all, slices.Clone(item.JSON))
	}
	codes := map[string]bool{}
	rejected := codesOf(t, cfg, all)
	for _, code := range rejected {
		codes[code] = true
	}
	require.Len(t, rejected, len(all))
	require.Equal(t, map[string]bool{
		"INVALID_TYPE": true, "DUPLICATE_FIELD": true, "RESERVED_FIELD": true, "MISSING_FIELD": true,
		"UNKNOWN_DETECTOR": true, "UNKNOWN_MEASURE_TYPE": true, "INVALID_TIMESTAMP": true, "INVALID_INTERVAL": true,
		"TIMESTAMP_IN_FUTURE": true, "INVALID_VALUE": true, "INVALID_QUALITY": true,
	}, codes, "all codes of contract 1.2 except that of the batch size, and no valid item")
}

// codesOf posts the items to a daemon with the detectors of the network, and returns the code of
// each rejected index.
func codesOf(t *testing.T, cfg generate.Config, items []json.RawMessage) map[int]string {
	t.Helper()
	d := newDaemon(t)
	d.Known = map[string]bool{}
	for _, row := range registryOf(t, cfg)[1:] {
		d.Known[row[0]] = true
	}
	codes := map[int]string{}
	const perBatch = 10_000
	for start := 0; start < len(items); start += perBatch {
		body, err := json.Marshal(map[string]any{"measurements": items[start:min(len(items), start+perBatch)]})
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+ingest.Path, bytes.NewReader(compress.Gzip(body)))
		require.NoError(t, err)
		req.Header = http.Header{
			"Authorization": {"apiKey " + testKey}, "Content-Type": {"application/json"}, "Content-Encoding": {"gzip"},
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusMultiStatus, resp.StatusCode)
		var result struct {
			Rejections []struct {
				Index int
				Error struct{ ErrorCode string }
			}
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&result))
		for _, r := range result.Rejections {
			codes[start+r.Index] = r.Error.ErrorCode
		}
	}
	return codes
}
