// Package progress reports the progress of a long step: as a bar on a terminal, otherwise as an occasional line.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// every is the interval of the lines without a terminal.
const every = 2 * time.Second

// Meter counts towards a total. It is for one goroutine.
type Meter struct {
	out   io.Writer
	what  string
	unit  string
	total int64
	bar   *progressbar.ProgressBar // nil if out is not a terminal
	shown time.Time
	start time.Time
}

// Bytes returns a meter for a step whose size in bytes is known.
func Bytes(out io.Writer, what string, total int64) *Meter {
	return newMeter(out, what, "MB", total, progressbar.OptionShowBytes(true))
}

// Files returns a meter for a step that processes an unknown number of files.
func Files(out io.Writer, what string) *Meter {
	return newMeter(out, what, "files", -1, progressbar.OptionShowCount(), progressbar.OptionSetItsString("files"))
}

func newMeter(out io.Writer, what, unit string, total int64, style ...progressbar.Option) *Meter {
	m := &Meter{out: out, what: what, unit: unit, total: total, start: time.Now(), shown: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		style = append(style, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
		m.bar = progressbar.NewOptions64(total, style...)
		return m
	}
	fmt.Fprintf(out, "%s …\n", what)
	return m
}

// Set reports that n of the total are done.
func (m *Meter) Set(n int64) {
	if m.bar != nil {
		m.bar.Set64(n)
		return
	}
	if time.Since(m.shown) >= every {
		m.shown = time.Now()
		fmt.Fprintf(m.out, "%s: %s\n", m.what, m.reading(n))
	}
}

func (m *Meter) reading(n int64) string {
	scale := int64(1)
	if m.unit == "MB" {
		scale = 1e6
	}
	if m.total < 0 {
		return fmt.Sprintf("%d %s", n/scale, m.unit)
	}
	return fmt.Sprintf("%d of %d %s", n/scale, m.total/scale, m.unit)
}

// Done ends the display with a line that reports the duration.
func (m *Meter) Done() {
	if m.bar != nil {
		m.bar.Finish()
	}
	fmt.Fprintf(m.out, "%s: done in %.1f s\n", m.what, time.Since(m.start).Seconds())
}
