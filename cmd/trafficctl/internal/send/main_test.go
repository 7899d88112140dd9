package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/cmd/trafficctl/internal/testdaemon"
)

func TestMain(m *testing.M) {
	testdaemon.VerifyTestMain(m)
}

func configFor(d *testdaemon.Daemon) Config {
	cfg := DefaultConfig()
	cfg.URL, cfg.Key = d.URL, testdaemon.Key
	return cfg
}

func newSender(t testing.TB, cfg Config, rejected io.Writer) *Sender {
	s, err := New(cfg, rejected, func(string) {})
	require.NoError(t, err)
	return s
}

// itemOf makes the n-th item of a detector.
func itemOf(detector string, n int) measurement.Item {
	const from = "2026-11-01T07:50:00Z"
	f := measurement.Fields{Detector: detector, Type: "speed", From: []byte(from), To: []byte(from), Value: fmt.Append(nil, n)}
	return measurement.Item{JSON: f.AppendJSON(nil), Order: measurement.OrderOf(detector)}
}

// series gives `each` items of every detector, one detector after the other,
// as files that are sorted by detector do.
func series(detectors, each int) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		row := int64(0)
		for d := range detectors {
			for n := range each {
				item := itemOf(fmt.Sprintf("D%d", d), n)
				row++
				item.Place.Row = row
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// sent reads an item back.
func sent(t testing.TB, item json.RawMessage) (detector string, n int) {
	var m struct {
		DetectorCode string
		Value        int
	}
	require.NoError(t, json.Unmarshal(item, &m))
	return m.DetectorCode, m.Value
}

// mixed gives items and errors as they are listed.
func mixed(list ...any) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		for i, x := range list {
			ok := true
			switch x := x.(type) {
			case error:
				ok = yield(measurement.Item{}, x)
			case measurement.Item:
				x.Place.Row = int64(i + 1)
				ok = yield(x, nil)
			}
			if !ok {
				return
			}
		}
	}
}

func badRow(row int64) error {
	return &measurement.RowError{Place: measurement.Place{Row: row}, Err: errors.New("unreadable")}
}

// eventually waits for what other goroutines will do.
func eventually(t testing.TB, ok func() bool) {
	require.Eventually(t, ok, 10*time.Second, time.Millisecond)
}
