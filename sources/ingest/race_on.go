//go:build race

package ingest

// poison overwrites a freed block, so that tests under -race detect a use after free.
func poison(b *block) {
	for i := range b {
		b[i] = 0xdb
	}
}

const raceEnabled = true // sync.Pool drops random items
