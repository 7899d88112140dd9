package faultinject

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// program prints, for each line of input, which calls fail.
const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	begin := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		at := time.Now()
		n, write := file.WriteAt([]byte("12345678"), 0)
		_, read := file.ReadAt(make([]byte, 8), 0)
		steady := time.Since(begin) >= 0 && time.Since(begin) < time.Minute
		fmt.Println(at.Unix(), steady, n, "write", write != nil, "read", read != nil, "sync", file.Sync() != nil, "truncate", file.Truncate(8) != nil)
	}
}
`

func TestFaults(t *testing.T) {
	needs.Everything(t, "a second build of the standard library, with another clock")
	dir := t.TempDir()
	overlay, err := Overlay(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", overlay, "-o", "program", "main.go")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	faults, err := New(filepath.Join(dir, "faults"))
	require.NoError(t, err)
	defer faults.Close()
	next := start(t, faults, filepath.Join(dir, "program"), filepath.Join(dir, "file"))

	f := func(want string, skew time.Duration, writes, reads int) {
		t.Helper()
		require.NoError(t, errors.Join(faults.Skew(skew), faults.FailWrites(writes), faults.FailReads(reads)))
		clock, rest := next()
		require.Equal(t, want, rest)
		require.InDelta(t, time.Now().Add(skew).Unix(), clock, 60)
	}
	const noFaults = "true 8 write false read false sync false truncate false"
	f(noFaults, 0, 0, 0)
	f("true 0 write true read false sync true truncate true", 0, 1, 0)
	f("true 8 write false read true sync false truncate false", 0, 0, 1)
	f(noFaults, -20*time.Minute, 0, 0)
	f("true 0 write true read true sync true truncate true", time.Hour, 1, 1)
	f(noFaults, 0, 0, 0)

	text, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "12345678", string(text))
}

// start runs the program. next makes it print a line, and returns the clock and the other words of
// that line.
func start(t *testing.T, faults *Faults, program string, args ...string) (next func() (clock int64, rest string)) {
	t.Helper()
	cmd := exec.Command(program, args...) // exits at the end of its input
	cmd.Env = append(os.Environ(), faults.Env())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	lines := bufio.NewReader(out)
	return func() (int64, string) {
		fmt.Fprintln(in, "next")
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		at, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		clock, err := strconv.ParseInt(at, 10, 64)
		require.NoError(t, err)
		return clock, rest
	}
}

// TestUnknownGoVersion checks that Overlay returns an error if the Go source does not contain the
// text to replace.
func TestUnknownGoVersion(t *testing.T) {
	changes = append(changes, Change{"time/time.go", "no such text", ""})
	defer func() { changes = changes[:len(changes)-1] }()
	_, err := Overlay(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "update the patches")
}
