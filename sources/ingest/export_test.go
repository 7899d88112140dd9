package ingest

// Held returns what e's requests hold: places and bytes.
func Held(e *Endpoint) (requests, bytes int64) {
	return e.receiver.Places.Total(), e.memory.Total()
}

// RaceEnabled reports whether sync.Pool drops some of what is put into it.
const RaceEnabled = raceEnabled
