// Package spoilt builds Go programs that live in a worse world: their clock can
// be set, and their disk can fail, while they run.
//
// A static binary asks the kernel itself, so nothing can be put between the
// two from outside. But the standard library is compiled into it, and go build
// takes an overlay: files to be read in place of others. The overlay adds one
// file to package syscall, and changes lines of the toolchain's own sources
// where time.Now takes the clock and where files are read, written and synced.
// All of the program itself is built as it is shipped.
package spoilt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed syscall.go.txt
var syscallFile []byte

// change replaces a text that stands in a file of the standard library once.
type change struct{ file, text, by string }

var changes = []change{
	{
		"time/time.go",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += syscall.SpoiltSkew()\n",
	},
	{"time/time.go", "import (\n", "import (\n\t\"syscall\"\n"},
	{
		"syscall/syscall_linux.go",
		"func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n",
		"func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n\tif spoiltSync(trap) {\n\t\treturn ^uintptr(0), 0, EIO\n\t}\n",
	},
	{
		"syscall/syscall_unix.go",
		"func Pwrite(fd int, p []byte, offset int64) (n int, err error) {\n",
		"func Pwrite(fd int, p []byte, offset int64) (n int, err error) {\n\tif rest, fails := spoiltWrite(p); fails {\n\t\t_, _ = pwrite(fd, rest, offset)\n\t\treturn -1, EIO\n\t}\n",
	},
	{
		"syscall/syscall_unix.go",
		"func Pread(fd int, p []byte, offset int64) (n int, err error) {\n",
		"func Pread(fd int, p []byte, offset int64) (n int, err error) {\n\tif spoiltRead() {\n\t\treturn -1, EIO\n\t}\n",
	},
}

// Overlay writes the changed files into dir and gives the argument of go build
// that has them used.
func Overlay(ctx context.Context, dir string) (string, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find Go's own sources: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	texts, err := changed(src)
	if err != nil {
		return "", err
	}
	texts["syscall/spoilt.go"] = string(syscallFile)
	replace := map[string]string{}
	for name, text := range texts {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("cannot write a changed file of the standard library: %w", err)
		}
		replace[filepath.Join(src, name)] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return "", fmt.Errorf("cannot write the overlay: %w", err)
	}
	return "-overlay=" + file, nil
}

// changed gives the changed files' texts by their names below src.
func changed(src string) (map[string]string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		if _, read := texts[c.file]; !read {
			text, err := os.ReadFile(filepath.Join(src, c.file))
			if err != nil {
				return nil, fmt.Errorf("cannot read Go's own source: %w", err)
			}
			texts[c.file] = string(text)
		}
		if n := strings.Count(texts[c.file], c.text); n != 1 {
			return nil, fmt.Errorf("cannot change %s of Go's standard library: %q stands there %d times, once is wanted; adapt the changes to this version of Go", c.file, c.text, n)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.text, c.by, 1)
	}
	return texts, nil
}
