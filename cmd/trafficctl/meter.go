package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// meter shows how much of a known number of bytes is done, while it is done:
// a bar on a terminal, now and then a line elsewhere. It serves one goroutine.
type meter struct {
	w           io.Writer
	done, total int64
	verb        string
	quiet       bool
	bar         *progressbar.ProgressBar // nil: lines
	shown       time.Time
}

func newMeter(w io.Writer, verb string, total int64, quiet bool) *meter {
	m := &meter{w: w, verb: verb, total: total, quiet: quiet, shown: time.Now()}
	if f, ok := w.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		m.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription(verb),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(24),
			progressbar.OptionThrottle(barEvery),
			progressbar.OptionClearOnFinish(),
		)
	}
	return m
}

// add counts n more bytes, of which there may come out more than were expected.
func (m *meter) add(n int64) {
	m.done = min(m.done+n, m.total)
	switch {
	case m.bar != nil:
		m.bar.Set64(m.done)
	case !m.quiet && time.Since(m.shown) >= lineEvery:
		m.shown = time.Now()
		fmt.Fprintln(m.w, "trafficctl:", m.text())
	}
}

func (m *meter) text() string {
	const mega = 1e6
	done, total := float64(m.done)/mega, float64(m.total)/mega
	return fmt.Sprintf("%s %.1f of %.1f MB (%.0f %%)", m.verb, done, total, 100*done/max(total, 1e-9))
}

func (m *meter) end() {
	if m.bar != nil {
		m.bar.Finish()
	}
}
