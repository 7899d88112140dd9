package stores

import (
	"fmt"
	"os"
	"testing"
)

// LogEnv names the environment variable with the file that records which stores tests were given.
const LogEnv = "TRAFFICD_STORES_LOG"

// launchFor starts stores that end with the test.
func launchFor(t testing.TB, opts Options) *Stores {
	t.Helper()
	opts.Dir = t.TempDir()
	opts.Stderr = t.Output()
	s, err := Launch(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// report says in the test's log, and in the file of LogEnv, which store the test really ran on. A line is one write, so
// that parallel test processes do not mix theirs.
func report(t testing.TB, store, kind, version, address string) {
	t.Helper()
	t.Logf("%s: %s %s at %s", store, kind, version, address)
	file := os.Getenv(LogEnv)
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatalf("cannot open the file of %s: %v", LogEnv, err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s %s %s\n", t.Name(), store, kind, version); err != nil {
		t.Fatalf("cannot write the file of %s: %v", LogEnv, err)
	}
}
