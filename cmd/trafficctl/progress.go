package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/send"
)

const (
	barInterval  = 200 * time.Millisecond
	lineInterval = 5 * time.Second // between lines, if there is no terminal
)

// progress shows a progress bar if w is a terminal, or else prints a line every lineInterval. It is
// safe for concurrent use.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	quiet    bool
	bar      *progressbar.ProgressBar // nil: print lines
	lastLine time.Time                // when the last line was printed
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newProgress returns a progress display for total units. A total of 0 or less means unknown.
func newProgress(w io.Writer, quiet bool, total int64, options ...progressbar.Option) *progress {
	p := &progress{w: w, quiet: quiet, lastLine: time.Now()}
	if !quiet && isTerminal(w) {
		if total <= 0 {
			total = -1 // show a spinner
		}
		p.bar = progressbar.NewOptions64(total, append(options,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetWidth(24),
			progressbar.OptionThrottle(barInterval),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(total > 0),
		)...)
	}
	return p
}

// newByteProgress returns a progress display for total bytes and a function that advances it by n
// bytes.
func newByteProgress(w io.Writer, verb string, total int64, quiet bool) (p *progress, add func(n int64)) {
	p = newProgress(w, quiet, total, progressbar.OptionShowBytes(true))
	done := int64(0)
	return p, func(n int64) {
		if done += n; total > 0 {
			done = min(done, total) // the journal may have grown
		}
		p.show(done, verb, verb+" "+megabytes(done, total))
	}
}

// show sets the bar's position and description. Without a bar, it prints line if the previous line
// was printed at least lineInterval ago.
func (p *progress) show(done int64, description, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bar != nil:
		p.bar.Describe(description)
		p.bar.Set64(done)
	case !p.quiet && time.Since(p.lastLine) >= lineInterval:
		p.lastLine = time.Now()
		fmt.Fprintln(p.w, "trafficctl:", line)
	}
}

// note prints a message without garbling the bar.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Clear()
	}
	fmt.Fprintln(p.w, "trafficctl:", text)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Finish()
	}
}

// follow shows the tally and the number of bytes read from file until the caller calls stop.
func (p *progress) follow(file *feed.Source, tally func() send.Tally) (stop func()) {
	var running sync.WaitGroup
	quit, start := make(chan struct{}), time.Now()
	running.Go(func() {
		tick := time.NewTicker(barInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-quit:
				p.end()
				return
			}
			text, read := sendingText(tally(), time.Since(start)), file.BytesRead()
			line := text
			if read > 0 {
				line += ", " + megabytes(read, file.Size) + " of input read"
			}
			p.show(read, text, line)
		}
	})
	return func() {
		close(quit)
		running.Wait()
	}
}

func sendingText(t send.Tally, took time.Duration) string {
	items := t.Accepted + t.Rejected
	text := fmt.Sprintf("%s items, %s/s", grouped(items), grouped(int64(float64(items)/took.Seconds())))
	if t.Rejected > 0 {
		text += ", " + grouped(t.Rejected) + " rejected"
	}
	return text
}
