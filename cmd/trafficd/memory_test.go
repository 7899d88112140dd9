package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
)

// TestMemory tests promise 5: settings bound the memory, regardless of what clients send. 64
// clients send a body each at the same time, several times.
func TestMemory(t *testing.T) {
	const clients, limit = 64, 14_000
	batchWith := func(n int, item func(i int) string) []byte {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return compress.Gzip(contract.Batch(items...))
	}
	measurement := func(code, kind string, i int) string {
		m := contract.Measurement{
			DetectorCode: code, MeasureTypeCode: kind, TimestampFrom: day, TimestampTo: day.Add(5 * time.Minute),
			Value:   json.Number(fmt.Sprintf("%.4f", 100+100*math.Sin(float64(i)))), // compressible only in part
			Quality: json.Number(fmt.Sprintf("%.4f", 0.5+0.5*math.Cos(float64(i)))),
		}
		return string(m.AppendJSON(nil))
	}
	f := func(name string, accepted, rejected, rounds int, maxBytes int64, packed []byte) {
		t.Run(name, func(t *testing.T) {
			d, _, _ := onRealStores(t)
			d.start().Await(http.StatusOK)
			idle := d.memory("VmHWM")
			d.sendTogether(packed, clients, rounds, fmt.Sprintf(`{"accepted":%d,"rejected":%d,`, accepted, rejected))
			require.False(t, t.Failed())
			d.awaitDelivered()
			peak := d.memory("VmHWM")
			t.Logf("%s: %d bodies of %d kB (gzip), %d at a time: peak %d MiB (idle %d MiB)", name, rounds*clients, len(packed)>>10, clients, peak>>20, idle>>20)
			require.Less(t, peak, maxBytes)
		})
	}
	f("full batches", limit, 0, 2, 256<<20, batchWith(limit, func(i int) string {
		return measurement(daemontest.Detector(i), fmt.Sprint("flow", i/100), i)
	}))
	f("codes of 256 bytes", 0, limit, 1, 512<<20, batchWith(limit, func(i int) string {
		return measurement(strings.Repeat("d", 250)+fmt.Sprintf("%06d", i), "flow", i)
	}))
	f("as many measure types as items", limit, 0, 1, 512<<20, batchWith(limit, func(i int) string {
		return measurement(daemontest.Detector(i), strings.Repeat("m", 58)+fmt.Sprintf("%06d", i), i)
	}))
	f("the longest echoes", 0, limit, 1, 512<<20, batchWith(limit, func(i int) string {
		return measurement(strings.Repeat(`\u0001`, 250), "flow", i)
	}))
	f("ten times too many", limit, 9*limit, 1, 512<<20, batchWith(10*limit, func(i int) string {
		return measurement(daemontest.Detector(i), fmt.Sprint("flow", i/100%140), i)
	}))
}

// sendTogether has clients send a body at the same time, in rounds. Each must get a 207 whose body
// begins with want. Rejected requests are sent again.
func (d *process) sendTogether(packed []byte, clients, rounds int, want string) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	var sending sync.WaitGroup
	for range clients {
		sending.Go(func() {
			for range rounds {
				if got, err := d.sendUntil207(client, packed); err != nil || !strings.HasPrefix(got, want) {
					d.t.Errorf("got %.100s, %v; want %s", got, err, want)
				}
			}
		})
	}
	sending.Wait()
}

// sendUntil207 sends a body until it gets a 207, and returns the text of the response, which may be
// long.
func (d *process) sendUntil207(client *http.Client, packed []byte) (string, error) {
	for {
		r, err := launch.Post(d.t.Context(), client, "http://"+d.API, testKey, packed)
		if err != nil || r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			return string(r.Body), err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
