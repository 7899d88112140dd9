package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
)

// faultLog records the beginning and the end of each fault, with the time of day in UTC, in
// faults.log in the directory of a run. It is safe for concurrent use.
type faultLog struct {
	mu    sync.Mutex
	file  *os.File
	lines []loggedFault
	more  io.Writer // receives each line too
}

type loggedFault struct {
	at   time.Time
	text string
}

func newFaultLog(dir string, more io.Writer) (*faultLog, error) {
	file, err := os.Create(filepath.Join(dir, "faults.log"))
	if err != nil {
		return nil, fmt.Errorf("cannot create the log of the faults: %w", err)
	}
	return &faultLog{file: file, more: more}, nil
}

func (l *faultLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := loggedFault{time.Now(), fmt.Sprintf(format, args...)}
	l.lines = append(l.lines, f)
	fmt.Fprintln(io.MultiWriter(l.file, l.more), f)
}

func (l *faultLog) close() error { return l.file.Close() }

// String returns the line in the log.
func (f loggedFault) String() string { return clockTime(f.at) + " " + f.text }

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Faults that began or ended in this time around the 207 of a batch may have affected it: before,
// while it was sent, and after, while it was delivered.
const (
	explainBefore = 10 * time.Second
	explainAfter  = 30 * time.Second
)

// explain prints the faults around the first batch of which a store lost or duplicated an item, if
// there is one.
func (l *faultLog) explain(out io.Writer, stores []*judge.Verdict) {
	var first ledger.Accepted
	for _, v := range stores {
		if v.First.At.IsZero() {
			continue
		}
		if first.At.IsZero() || v.First.At.Before(first.At) {
			first = v.First
		}
	}
	if first.At.IsZero() {
		return
	}
	fmt.Fprintf(out, "   the first lost or duplicated batch is %s, with a 207 at %s UTC;"+
		" the faults from %v before to %v after that, of all in %s:\n",
		first.Batch, clockTime(first.At), explainBefore, explainAfter, l.file.Name())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.lines {
		if since := f.at.Sub(first.At); since >= -explainBefore && since <= explainAfter {
			fmt.Fprintln(out, "  ", f)
		}
	}
}
