package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"trafficd/cmd/trafficctl/internal/send"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second // where a bar cannot be drawn: in a log
)

// progress shows how far the sending is: a bar on a terminal, now and then a
// line elsewhere.
type progress struct {
	mu    sync.Mutex // notes come from the workers, in between
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	in    input
	quiet bool
	start time.Time
}

func newProgress(w io.Writer, in input, quiet bool) *progress {
	p := &progress{w: w, in: in, quiet: quiet, start: time.Now()}
	if f, ok := w.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(max(in.size, -1),
			progressbar.OptionSetWriter(w),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(24),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(in.size > 0),
		)
	}
	return p
}

// note tells the person who watches something, without spoiling the bar.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Clear()
	}
	fmt.Fprintln(p.w, "trafficctl:", text)
}

// follow shows the tally until the returned function is called, which waits
// for the goroutine that does it.
func (p *progress) follow(tally func() send.Tally) (stop func()) {
	if p.quiet {
		return func() {}
	}
	every := lineEvery
	if p.bar != nil {
		every = barEvery
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.loop(every, tally, quit)
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (p *progress) loop(every time.Duration, tally func() send.Tally, quit <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.show(tally())
		case <-quit:
			p.finish()
			return
		}
	}
}

func (p *progress) show(t send.Tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		fmt.Fprintln(p.w, "trafficctl:", p.text(t))
		return
	}
	p.bar.Describe(p.text(t))
	if p.in.bytes != nil {
		p.bar.Set64(p.in.bytes())
	}
}

func (p *progress) text(t send.Tally) string {
	items := t.Accepted + t.Rejected
	text := fmt.Sprintf("%s items, %s/s", grouped(items), grouped(int64(float64(items)/time.Since(p.start).Seconds())))
	if t.Rejected > 0 {
		text += ", " + grouped(t.Rejected) + " rejected"
	}
	if p.bar == nil && p.in.bytes != nil {
		text += p.share()
	}
	return text
}

func (p *progress) share() string {
	const mega = 1e6
	read := float64(p.in.bytes()) / mega
	if p.in.size <= 0 {
		return fmt.Sprintf(", %.1f MB of input read", read)
	}
	size := float64(p.in.size) / mega
	return fmt.Sprintf(", %.1f of %.1f MB of input read (%.0f %%)", read, size, 100*read/size)
}

func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Finish()
	}
}
