package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // runs until the process exits
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// result is the outcome of a run of the program.
type result struct {
	code     int
	out, err string
}

func runWith(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(context.Background(), args, streams{strings.NewReader(stdin), &out, &errs})
	return result{code, out.String(), errs.String()}
}

// requireSuccess runs the program, which must succeed.
func requireSuccess(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	r := runWith(t, stdin, args...)
	require.Equal(t, exitDone, r.code, r.err)
	return r
}

// requireFailure runs the program, which must fail with an error that contains want.
func requireFailure(t testing.TB, stdin, want string, args ...string) result {
	t.Helper()
	r := runWith(t, stdin, args...)
	require.Equal(t, exitFailed, r.code, r.err)
	require.Contains(t, r.err, want)
	return r
}

// to appends the flags for a daemon.
func to(d *testDaemon, args ...string) []string {
	return append(args, "--url", d.URL, "--key", testKey)
}

func file(t testing.TB, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// textOf returns the content of a file.
func textOf(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// texts returns the items that arrived.
func texts(d *testDaemon) (items []string) {
	for _, item := range d.Items() {
		items = append(items, string(item))
	}
	return items
}

// TestHelp checks that every command has a help text with an example.
func TestHelp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		r := requireSuccess(t, "", append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		require.Contains(t, r.out, cmd.CommandPath())
		if !cmd.HasSubCommands() {
			require.Contains(t, r.out, "Examples:", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(newRoot(streams{}))
	require.Contains(t, runWith(t, "", "geometry", "--help").out, "VENDOR_SUPERCONFORM")
	require.Contains(t, runWith(t, "", "completion", "bash").out, "bash completion")
}

// TestFullDisk checks that output that cannot be written is a failure, for example if it is
// redirected to a file on a full disk.
func TestFullDisk(t *testing.T) {
	l := newLetters(t)
	l.add("kafka", "MESSAGE_TOO_LARGE", 1, north("A"))
	journal := newTestJournal(t, journalBatches(1, 1), "kafka")
	keys := file(t, "keys.yaml", "keys: []\n")
	for _, command := range []string{
		"deadletter ls " + l.path, "journal ls " + journal, "journal verify " + journal, "journal cursors " + journal,
		"journal dump " + journal, "key list --file " + keys, "version",
	} {
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(command), streams{strings.NewReader(""), brokenWriter{}, &errs})
		require.Equal(t, exitFailed, code, command)
		require.Contains(t, errs.String(), "disk full", command)
	}
}

func TestUnknownFlag(t *testing.T) {
	requireFailure(t, "", "--fast", "send", "--fast")
}

// TestUsageErrors checks that errors about arguments and flags say where the usage is described.
func TestUsageErrors(t *testing.T) {
	requireFailure(t, "", "received 0; usage: trafficctl resubmit FILE|- [flags]", "resubmit")
	requireFailure(t, "", "usage: trafficctl version [flags]", "version", "day.csv")
	requireFailure(t, "", "unknown flag: --fast; see trafficctl send --help", "send", "--fast")
}

// TestInterruptedInput checks that an interrupt ends a command that waits for standard input.
func TestInterruptedInput(t *testing.T) {
	f := func(args ...string) {
		t.Helper()
		in, input, err := os.Pipe()
		require.NoError(t, err)
		defer in.Close()
		defer input.Close() // ends the blocked read
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, interrupt)
		var errs bytes.Buffer
		done := make(chan int, 1)
		go func() { done <- run(ctx, args, streams{in, io.Discard, &errs}) }()
		select {
		case code := <-done:
			require.Equal(t, exitFailed, code, args)
			require.Contains(t, errs.String(), "interrupted", args)
		case <-time.After(time.Minute):
			t.Fatalf("%v did not end after an interrupt", args)
		}
	}
	d := newDaemon(t)
	f(to(d, "send", "-")...)
	f(to(d, "resubmit", "-", "--dry-run")...)
	f("geometry")
	f("forecast", "publish", "-")

	// A named pipe, first without a writer, then with one that does not write.
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	f(to(d, "send", pipe, "--dry-run")...)
	f("deadletter", "ls", pipe)
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // ends the abandoned call
	require.NoError(t, err)
	defer writer.Close()  // ends the blocked reads
	defer os.Remove(pipe) // first, because a late call that opens the pipe would block forever
	f(to(d, "send", pipe)...)
	f("geometry", pipe)
	f("forecast", "publish", pipe)
	f("deadletter", "ls", pipe)
}

func TestVersion(t *testing.T) {
	r := requireSuccess(t, "", "--version")
	require.Regexp(t, `^trafficctl .* go1\.\d+`, r.out)
	require.Equal(t, r, runWith(t, "", "version"))
}

func TestGrouped(t *testing.T) {
	f := func(n int64, want string) {
		t.Helper()
		require.Equal(t, want, grouped(n))
	}
	f(0, "0")
	f(999, "999")
	f(1000, "1,000")
	f(14274722, "14,274,722")
	f(-100, "-100")
	f(-1000, "-1,000")
}

// summaryOf parses the line that --json printed.
func summaryOf(t testing.TB, r result) (sum map[string]any) {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.out, "\n"), r.out)
	require.NoError(t, json.Unmarshal([]byte(r.out), &sum))
	return sum
}

// TestUnknownCommands checks that an unknown command is an error in each group, even if flags
// follow it.
func TestUnknownCommands(t *testing.T) {
	for _, group := range newRoot(streams{}).Commands() {
		if !group.HasSubCommands() {
			continue
		}
		for _, args := range [][]string{{"nosuch"}, {"nosuch", "--url", "http://127.0.0.1:1"}} {
			requireFailure(t, "", `unknown command "nosuch" for `+group.Name()+"; its commands are "+group.Commands()[0].Name(), append([]string{group.Name()}, args...)...)
		}
		requireFailure(t, "", "unknown flag: --url; "+group.Name()+" requires a command", group.Name(), "--url", "http://127.0.0.1:1")
		for _, args := range [][]string{{group.Name()}, {group.Name(), "-h"}, {group.Name(), "--help"}, {"help", group.Name()}} {
			require.Contains(t, requireSuccess(t, "", args...).out, "Available Commands:")
		}
	}
}
