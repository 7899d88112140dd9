//go:build race

package ingest

const raceEnabled = true // sync.Pool drops random items
