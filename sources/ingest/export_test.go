package ingest

// Held is what e's requests hold now: places and bytes.
func Held(e *Endpoint) (requests, bytes int64) {
	return e.admission.held()
}

// RaceEnabled tells whether sync.Pool drops some of what it is given.
const RaceEnabled = raceEnabled
