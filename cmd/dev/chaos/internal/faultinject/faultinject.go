// Package faultinject writes an overlay for go build. In a program built with it, the clock can be
// shifted and disk operations made to fail at run time.
//
// A static binary makes system calls directly, so LD_PRELOAD cannot intercept them. But an overlay
// can replace any source file, even one in the standard library. This one adds a file to package
// syscall and patches the functions that read the clock and those that read, write, sync and
// truncate files. The program's own code is unchanged.
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

	"trafficd/cmd/dev/must"
)

//go:embed syscall.go.txt
var syscallFile string

// Change replaces Old, which must occur exactly once, with New in a file of the standard library.
type Change struct{ File, Old, New string }

var changes = []Change{
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

// Overlay writes the changed files to dir and returns the -overlay flag for go build.
func Overlay(ctx context.Context, dir string) (argument string, err error) {
	return Patch(ctx, dir, changes, map[string]string{"syscall/fault.go": syscallFile})
}

// Patch writes an overlay with changes of the standard library, and texts of additional files, to
// dir. It returns the -overlay flag for go build.
func Patch(ctx context.Context, dir string, changes []Change, texts map[string]string) (argument string, err error) {
	defer must.Return(&err, "cannot patch the standard library")
	goroot := must.Get(exec.CommandContext(ctx, "go", "env", "GOROOT").Output())
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	for _, c := range changes {
		if texts[c.File] == "" {
			texts[c.File] = string(must.Get(os.ReadFile(filepath.Join(src, c.File))))
		}
		if n := strings.Count(texts[c.File], c.Old); n != 1 {
			return "", fmt.Errorf("cannot patch %s in the standard library: %q occurs %d times, not once; update the patches for this Go version",
				c.File, c.Old, n)
		}
		texts[c.File] = strings.Replace(texts[c.File], c.Old, c.New, 1)
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

// env is the name of the environment variable that holds the path of the control file.
const env = "FAULT_FILE"

// The offsets of the words in the control file, as in syscall.go.txt.
const (
	skew = 8 * iota
	writeFaults
	readFaults

	pageBytes = 4096
)

// Faults controls fault injection in running programs through the control file, which they map into
// memory.
type Faults struct{ file *os.File }

// New creates the control file at path, with all faults disabled.
func New(path string) (*Faults, error) {
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(pageBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create the fault control file: %w", err)
	}
	return &Faults{f}, nil
}

// Env returns the environment variable, as key=value, for a program built with the overlay.
func (f *Faults) Env() string { return env + "=" + f.file.Name() }

// Skew sets the offset of the clock from the real time, truncated to whole seconds. Like setting a
// real clock, it does not affect the monotonic clock.
func (f *Faults) Skew(offset time.Duration) error { return f.set(skew, int64(offset/time.Second)) }

// FailWrites makes about one in every oneIn pwrites, syncs and truncations fail with EIO. A failed
// pwrite writes half of its bytes. If oneIn is 0, none fail.
func (f *Faults) FailWrites(oneIn int) error { return f.set(writeFaults, int64(oneIn)) }

// FailReads does the same for preads.
func (f *Faults) FailReads(oneIn int) error { return f.set(readFaults, int64(oneIn)) }

// set writes a word in a single call, because programs read it concurrently.
func (f *Faults) set(word int64, value int64) error {
	b := binary.NativeEndian.AppendUint64(nil, uint64(value))
	if _, err := f.file.WriteAt(b, word); err != nil {
		return fmt.Errorf("cannot write the fault control file: %w", err)
	}
	return nil
}

// Close closes the control file. Running programs keep the faults that were set last.
func (f *Faults) Close() error { return f.file.Close() }
