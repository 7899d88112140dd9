package spoilt

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
)

// env names the page to a spoilt program.
const env = "SPOILT_PAGE"

// The words of the page, as syscall.go.txt reads them.
const (
	skew = 8 * iota
	writeFaults
	readFaults

	pageBytes = 4096
)

// Page is what spoilt programs look at in each call: it changes what they meet
// while they run.
type Page struct{ file *os.File }

// NewPage makes a page that spoils nothing.
func NewPage(path string) (*Page, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("cannot make the page of a spoilt program: %w", err)
	}
	if err := f.Truncate(pageBytes); err != nil {
		return nil, fmt.Errorf("cannot make the page of a spoilt program: %w", err)
	}
	return &Page{f}, nil
}

// Env makes a program that is started with it look at the page.
func (p *Page) Env() string { return env + "=" + p.file.Name() }

// Skew sets the clock ahead, or back, in whole seconds. What measures how long
// something takes goes on as before, as with a real clock that is set.
func (p *Page) Skew(by time.Duration) error { return p.set(skew, int64(by/time.Second)) }

// FailWrites has one in so many writes at an offset, syncs and truncations end
// with EIO, with a part of the bytes written; 0 ends that.
func (p *Page) FailWrites(oneIn int) error { return p.set(writeFaults, int64(oneIn)) }

// FailReads does the same to reads at an offset.
func (p *Page) FailReads(oneIn int) error { return p.set(readFaults, int64(oneIn)) }

// set writes a word as one: the page is shared memory for those who look at it.
func (p *Page) set(word int64, value int64) error {
	b := binary.NativeEndian.AppendUint64(nil, uint64(value))
	if _, err := p.file.WriteAt(b, word); err != nil {
		return fmt.Errorf("cannot write the page of a spoilt program: %w", err)
	}
	return nil
}

// Close ends the use of the page; a program that has it goes on with its last
// words.
func (p *Page) Close() error { return p.file.Close() }
