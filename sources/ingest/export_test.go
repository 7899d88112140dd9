package ingest

import "github.com/prometheus/client_golang/prometheus/testutil"

// Held returns what e's requests hold: slots and bytes.
func Held(e *Endpoint) (requests, bytes int64) {
	return e.receiver.Slots.Total(), e.memory.Total()
}

// HeldBytes returns the memory that all requests of the process hold.
func HeldBytes() int64 { return int64(testutil.ToFloat64(memory.Used)) }

// RaceEnabled reports whether the race detector is enabled. It makes sync.Pool drop random items.
const RaceEnabled = raceEnabled
