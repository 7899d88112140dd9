// Package faultinject builds Go programs whose clock can be set and whose disk can fail while they
// run.
//
// A static binary calls the kernel directly, so nothing can be interposed from outside. But go
// build accepts an overlay that replaces source files, even those of the standard library. The
// overlay adds one file to package syscall and changes the lines where time.Now reads the clock and
// where files are read, written and synced. The program's own code is unchanged.
package faultinject

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"trafficd/cmd/internal/must"
)

//go:embed syscall.go.txt
var syscallFile string

// change replaces old, which must occur exactly once, with new in a file of the standard library.
type change struct{ file, old, new string }

var changes = []change{
	{
		"time/time.go",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += syscall.FaultSkew()\n",
	},
	{"time/time.go", "import (\n", "import (\n\t\"syscall\"\n"},
	{
		"syscall/syscall_linux.go",
		"func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n",
		"func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n\tif faultSync(trap) {\n\t\treturn ^uintptr(0), 0, EIO\n\t}\n",
	},
	{
		"syscall/syscall_unix.go",
		"func Pwrite(fd int, p []byte, offset int64) (n int, err error) {\n",
		"func Pwrite(fd int, p []byte, offset int64) (n int, err error) {\n" +
			"\tif rest, fails := faultWrite(p); fails {\n\t\t_, _ = pwrite(fd, rest, offset)\n\t\treturn -1, EIO\n\t}\n",
	},
	{
		"syscall/syscall_unix.go",
		"func Pread(fd int, p []byte, offset int64) (n int, err error) {\n",
		"func Pread(fd int, p []byte, offset int64) (n int, err error) {\n\tif faultRead() {\n\t\treturn -1, EIO\n\t}\n",
	},
}

// Overlay writes the changed files to dir and returns the argument of go build that uses them.
func Overlay(ctx context.Context, dir string) (argument string, err error) {
	defer must.Return(&err, "cannot change the standard library")
	goroot := must.Get(exec.CommandContext(ctx, "go", "env", "GOROOT").Output())
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	texts := map[string]string{"syscall/fault.go": syscallFile}
	for _, c := range changes {
		if texts[c.file] == "" {
			texts[c.file] = string(must.Get(os.ReadFile(filepath.Join(src, c.file))))
		}
		if n := strings.Count(texts[c.file], c.old); n != 1 {
			return "", fmt.Errorf("cannot change %s of Go's standard library: %q occurs %d times, not once; adapt the changes to this version of Go",
				c.file, c.old, n)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
	}
	must.Do(os.MkdirAll(dir, 0o755))
	replace := map[string]string{}
	for name, text := range texts {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		replace[filepath.Join(src, name)] = file
		must.Do(os.WriteFile(file, []byte(text), 0o644))
	}
	file := filepath.Join(dir, "overlay.json")
	must.Do(os.WriteFile(file, must.Get(json.Marshal(map[string]any{"Replace": replace})), 0o644))
	return "-overlay=" + file, nil
}

// env names the environment variable with the file that controls the faults.
const env = "FAULT_FILE"

// The offsets of the words in the file, as in syscall.go.txt.
const (
	skew = 8 * iota
	writeFaults
	readFaults

	pageBytes = 4096
)

// Faults controls the faults of running programs through a file that they map into memory.
type Faults struct{ file *os.File }

// New creates the control file at path, with all faults disabled.
func New(path string) (*Faults, error) {
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(pageBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create the fault file: %w", err)
	}
	return &Faults{f}, nil
}

// Env returns the environment variable for a program built with the overlay.
func (f *Faults) Env() string { return env + "=" + f.file.Name() }

// Skew moves the clock forward or back by whole seconds. The monotonic clock is not affected, as
// when a real clock is set.
func (f *Faults) Skew(by time.Duration) error { return f.set(skew, int64(by/time.Second)) }

// FailWrites makes one in oneIn positioned writes, syncs and truncations fail with EIO, with some
// of the bytes written; 0 stops it.
func (f *Faults) FailWrites(oneIn int) error { return f.set(writeFaults, int64(oneIn)) }

// FailReads does the same for positioned reads.
func (f *Faults) FailReads(oneIn int) error { return f.set(readFaults, int64(oneIn)) }

// set writes a word atomically, because programs map the file into memory.
func (f *Faults) set(word int64, value int64) error {
	b := binary.NativeEndian.AppendUint64(nil, uint64(value))
	if _, err := f.file.WriteAt(b, word); err != nil {
		return fmt.Errorf("cannot write the fault file: %w", err)
	}
	return nil
}

// Close closes the file. Programs that map it keep the last faults.
func (f *Faults) Close() error { return f.file.Close() }
