package clickhouse

import (
	"fmt"
	"os"
)

// forgetPartLog removes what the last server left of system.part_log. The library
// does not load its system tables again: it makes them anew in the same folder
// when they are first written to, stumbles over the one that is there ("Directory …
// already exists" in its log), and then logs nothing; SYSTEM FLUSH LOGS waits for
// ever for the table. So its log reaches back to the start only. A full server keeps
// its tables elsewhere and has links there: they stay.
func (h home) forgetPartLog() error {
	left := h.path("data/data/system/part_log")
	if info, err := os.Lstat(left); err != nil || !info.IsDir() {
		return nil
	}
	if err := os.RemoveAll(left); err != nil {
		return fmt.Errorf("cannot start ClickHouse's log of inserts anew: %w", err)
	}
	return nil
}
