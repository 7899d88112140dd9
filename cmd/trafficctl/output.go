package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/cmd/trafficctl/internal/send"
	"trafficd/pipeline/lib/replace"
)

const stdio = feed.Stdin // the file name that selects standard input or standard output

// writeOutput calls write with a buffered writer to stdout if path is "-", or else to the file,
// which it compresses if path ends in .gz or .zst. It replaces a regular file atomically once write
// has succeeded: a daemon may be watching the file, and the old content must survive a failure. The
// writer fails once ctx is done.
func writeOutput(ctx context.Context, path string, stdout io.Writer, write func(io.Writer) error) error {
	buffered := func(w io.Writer) error {
		out := bufio.NewWriterSize(interrupt.Writer{Ctx: ctx, Out: w}, 64<<10)
		err := write(out)
		return cmp.Or(err, out.Flush()) // Flush would repeat a write error
	}
	if path == stdio {
		return buffered(stdout)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a device or a pipe cannot be replaced
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f), f.Close())
	}
	extension := filepath.Ext(path)
	if extension == ".xz" {
		return errors.New("xz is only supported for input; use .gz or .zst")
	}
	return replace.File(path, 0o666, func(w io.Writer) error {
		var z io.WriteCloser
		switch extension { // the constructors fail only for invalid options
		case ".gz":
			z, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
		case ".zst":
			z, _ = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		default:
			return buffered(w)
		}
		return errors.Join(buffered(z), z.Close())
	})
}

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

func megabytes(done, total int64) string {
	const mega = 1e6
	if total <= 0 {
		return fmt.Sprintf("%.1f MB", float64(done)/mega)
	}
	return fmt.Sprintf("%.1f of %.1f MB (%.0f%%)", float64(done)/mega, float64(total)/mega, 100*float64(done)/float64(total))
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

// printable returns text with U+FFFD for each character that is not printed, such as a line break
// or the start of an escape sequence: text from clients and stores must not control the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func sendingText(t send.Tally, took time.Duration) string {
	items := t.Accepted + t.Rejected
	text := fmt.Sprintf("%s items, %s/s", grouped(items), grouped(int64(float64(items)/took.Seconds())))
	if t.Rejected > 0 {
		text += ", " + grouped(t.Rejected) + " rejected"
	}
	return text
}
