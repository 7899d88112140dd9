package kafka

import (
	"strings"
	"sync"
)

// mavenLog keeps what Maven says: how many files it has brought so far and, if it fails, why. It is written to by one goroutine and read by another.
type mavenLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *mavenLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *mavenLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// files counts the files downloaded, then copied.
func (l *mavenLog) files() int64 {
	text := l.String()
	return int64(strings.Count(text, "Downloaded from ") + strings.Count(text, "Copying "))
}

// errors are the lines that Maven marks as such.
func (l *mavenLog) errors() string {
	var marked []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "ERROR") {
			marked = append(marked, line)
		}
	}
	return strings.Join(marked[:min(len(marked), 8)], "")
}
