package town

import (
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/decode"
	"trafficd/pipeline/validate"
	"trafficd/schemas/contract"
)

// TestMeasurementsAreValid checks that the daemon accepts every measurement of a registered
// detector. Measurements are ordered by time, and each interval starts a batch.
func TestMeasurementsAreValid(t *testing.T) {
	cfg := configured(func(c *MeasurementConfig) { c.AllTypes = true })
	var all [][]byte
	type m struct {
		DetectorCode, MeasureTypeCode string
		TimestampFrom, TimestampTo    time.Time
		Value, Quality                float64
	}
	intervals := 0
	for item := range network(t, cfg).Items() {
		all = append(all, slices.Clone(item.JSON))
		if item.StartsInterval {
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
	whole := float64(cfg.Streets * cfg.Intervals() * len(Types))
	require.InDelta(t, 1-cfg.GapRate, float64(len(all))/whole, 0.005)
}

// TestFaults checks that every kind of fault occurs, and the daemon rejects it with the code that
// the table lists.
func TestFaults(t *testing.T) {
	cfg := configured(func(c *MeasurementConfig) { c.ErrorRate = 1 })
	var wrong [][]byte
	var want []string
	for _, fault := range Faults {
		item := fault.Append(nil, contract.Measurement{
			DetectorCode: registry(t, cfg)[1][0], MeasureTypeCode: "speed", Value: "50", Quality: "0.9",
			TimestampFrom: cfg.From, TimestampTo: cfg.From.Add(cfg.Interval),
		})
		require.True(t, json.Valid(item), "%s: %s", fault.Name, item)
		wrong, want = append(wrong, item), append(want, fault.Code)
	}
	got := codesOf(t, cfg, wrong)
	for i, fault := range Faults {
		require.Equal(t, want[i], got[i], "%s: %s", fault.Name, wrong[i])
	}
	var all [][]byte
	for item := range network(t, cfg).Items() {
		all = append(all, slices.Clone(item.JSON))
	}
	codes := map[string]bool{}
	rejected := codesOf(t, cfg, all)
	for _, code := range rejected {
		codes[code] = true
	}
	require.Len(t, rejected, len(all))
	wanted := map[string]bool{}
	for _, rule := range contract.Rules {
		wanted[rule.Code.String()] = true
	}
	delete(wanted, contract.BatchLimitExceeded.String())
	require.Equal(t, wanted, codes, "all codes of contract 1.2 except that of the batch size, and no valid item")
}

// codesOf validates the items as a daemon with the detectors of the network, and returns the code
// of each rejected index.
func codesOf(t *testing.T, cfg MeasurementConfig, items [][]byte) map[int]string {
	t.Helper()
	var known []string
	for _, row := range registry(t, cfg)[1:] {
		known = append(known, row[0])
	}
	detectors, skipped := batch.NewDetectors(known)
	require.Zero(t, skipped)
	rules := validate.DefaultConfig()
	rules.FutureTolerance = 100 * 365 * 24 * time.Hour // the tests' measurements are of any year
	validator, decoder := validate.New(rules), decode.New(decode.DefaultConfig())
	codes := map[int]string{}
	const perBatch = 10_000
	for start := 0; start < len(items); start += perBatch {
		body := contract.Batch(items[start:min(len(items), start+perBatch)]...)
		var decoded batch.Items
		require.NoError(t, decoder.Decode(text(append(body, make([]byte, decode.Padding)...)[:len(body)]), &decoded))
		var rejections batch.Rejections
		validator.Validate(&decoded, detectors, time.Now().UnixNano(), false, &rejections)
		for _, r := range rejections.List {
			codes[start+int(r.Index)] = r.Code.String()
		}
	}
	return codes
}

// text is a decode.Text.
type text []byte

func (s text) Next(int) ([]byte, error) { return s, io.EOF }
