//go:build race

package ingest

// poison makes a use after the return visible in the tests under -race.
func poison(b *block) {
	for i := range b {
		b[i] = 0xdb
	}
}

const raceEnabled = true // sync.Pool drops some of what it is given
