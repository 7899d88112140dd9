package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/internal/ops"
)

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	d := newProcess(t).start()
	r := d.Await(http.StatusOK)
	require.Equal(t, ops.OK, r.State)
	status, body := d.Fetch("/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(body), "trafficd_journal_bytes")
	_, body = d.Fetch("/schemas/openapi.yaml")
	require.Contains(t, string(body), "openapi: 3.1")

	log := d.Terminate()
	require.Contains(t, log, "draining")

	// The same directory again, stopped by the other signal.
	d.start().Await(http.StatusOK)
	code, log := d.signal(syscall.SIGINT).End()
	require.Zero(t, code, log)
}

// TestStopWhileStarting checks that SIGTERM ends a daemon that cannot continue its start, here
// because nothing is written to the pipe that it reads the certificate from.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "tls.crt")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	d := newProcess(t, "api.tls_cert="+pipe, "api.tls_key="+pipe).start()
	var writer *os.File
	d.Eventually(func() (ok bool) {
		var err error
		writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails unless the daemon reads
		return err == nil
	}, "the daemon reads the certificate")
	defer writer.Close()
	require.Contains(t, d.Terminate(), "exiting before the start was complete")
}

// TestNotifySystemd checks what a unit of Type=notify expects: READY=1 when clients can connect and
// a reload is possible, and STOPPING=1 when the shutdown begins.
func TestNotifySystemd(t *testing.T) {
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
	message := func() string {
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
		buf := make([]byte, 100)
		n, err := socket.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
	d := newProcess(t).start()
	require.Equal(t, "READY=1", message())
	c, err := net.Dial("tcp", d.API)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	d.signal(syscall.SIGHUP)
	d.Await(http.StatusOK)
	d.Terminate()
	require.Equal(t, "STOPPING=1", message())

	t.Setenv("NOTIFY_SOCKET", "/does/not/exist")
	d.start().Await(http.StatusOK)
	require.Contains(t, d.Terminate(), "cannot notify systemd")
}

// TestWatchdog checks that the watchdog of a unit is notified twice in its interval while the
// daemon runs, and not while it hangs.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	// As systemd, set the ID of the process, which keeps that of the shell.
	d := newProcess(t)
	script := filepath.Join(t.TempDir(), "unit")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil,
		"#!/bin/sh\nNOTIFY_SOCKET=%s WATCHDOG_USEC=400000 WATCHDOG_PID=$$ exec %s \"$@\"\n", socket.LocalAddr(), d.Binary), 0o700))
	d.Binary = script
	messages := make(chan string, 1000)
	go func() { // until the socket is closed
		buf := make([]byte, 100)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	next := func() string {
		select {
		case m := <-messages:
			return m
		case <-time.After(time.Minute):
			return "nothing"
		}
	}
	d.start()
	require.Equal(t, "READY=1", next())
	for range 5 {
		require.Equal(t, "WATCHDOG=1", next())
	}
	d.signal(syscall.SIGSTOP)
	for quiet := false; !quiet; { // messages sent before it stopped
		select {
		case m := <-messages:
			require.Equal(t, "WATCHDOG=1", m)
		case <-time.After(time.Second):
			quiet = true
		}
	}
	d.signal(syscall.SIGCONT)
	require.Equal(t, "WATCHDOG=1", next())
	d.Terminate()
	for m := next(); m != "STOPPING=1"; m = next() {
		require.Equal(t, "WATCHDOG=1", m)
	}
}

func TestWithoutKeysAndRegistry(t *testing.T) {
	d := newProcess(t, "api.keys_file=", "registry.feeds=[]").start()
	var status int
	var r ops.Readiness
	d.Eventually(func() bool {
		status, r = d.Readiness()
		return r.Components["daemon"].State == ops.OK // started
	}, "started")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, ops.NotReady, r.Components["keys"].State)
	require.Equal(t, ops.NotReady, r.Components["registry"].State)
	require.Equal(t, ops.OK, r.Components["journal"].State)
	status, _ = d.Fetch("/healthz")
	require.Equal(t, http.StatusOK, status)
	d.Terminate()
}

// TestReadyWhileStoresAreUnreachable checks that unreachable stores are reported before the first
// batch, and that batches are accepted.
func TestReadyWhileStoresAreUnreachable(t *testing.T) {
	unused := daemontest.FreeAddress(t)
	d := newProcess(t, "kafka.enabled=true", "kafka.brokers="+unused, "clickhouse.enabled=true", "clickhouse.addresses="+unused).start()
	var r ops.Readiness
	d.Eventually(func() bool {
		_, r = d.Readiness()
		return r.Components["clickhouse"].State == ops.Degraded && r.Components["kafka"].State == ops.Degraded
	}, "both stores degraded")
	require.Contains(t, r.Components["clickhouse"].Reasons[0], "connection refused")
	require.Contains(t, r.Components["kafka"].Reasons[0], "connection refused")
	require.Equal(t, ops.Degraded, d.Await(http.StatusOK).State)
	a, err := d.Post(t.Context(), `{"measurements":[`+item(1, 0)+`]}`, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, a.Status)
	log := d.Terminate()
	require.Equal(t, 2, strings.Count(log, "the store cannot take rows"), log)
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	f := func(d *process, want ...string) {
		t.Helper()
		code, log := d.start().End()
		require.Equal(t, 1, code, log)
		for _, w := range want {
			require.Contains(t, log, w)
		}
	}
	first := newProcess(t).start()
	first.Await(http.StatusOK)

	same := newProcess(t, "journal.dir="+filepath.Join(first.Dir, "journal"))
	f(same, "locked", filepath.Join(first.Dir, "journal"), fmt.Sprintf("process %d;", first.PID()))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	taken := listener.Addr().String()
	f(newProcess(t, "api.listen="+taken), "cannot listen for clients", taken, "address already in use")
	f(newProcess(t, "ops.listen="+taken), "cannot listen for operators", taken, "address already in use")
	f(newProcess(t, "journal.dir=/proc/nowhere"), "journal.dir: ", "/proc/nowhere")
	f(newProcess(t, "api.keys_file=/nowhere/keys.yaml"), "api.keys_file: ", "/nowhere/keys.yaml")
	f(newProcess(t, "api.tls_cert=/nowhere/crt", "api.tls_key=/nowhere/key"), "api.tls_cert", "/nowhere/crt")
	f(newProcess(t, "kafka.enabled=true", "kafka.tls.enabled=true", "kafka.tls.ca=/nowhere/ca"), "kafka.tls.ca: ", "/nowhere/ca")
	f(newProcess(t, "clickhouse.enabled=true", "clickhouse.tls.enabled=true", "clickhouse.tls.ca=/nowhere/ca"), "clickhouse.tls.ca: ", "/nowhere/ca")
	f(newProcess(t, "forecasts.feed=kafka", "forecasts.kafka.tls.enabled=true", "forecasts.kafka.tls.ca=/nowhere/ca"), "forecasts.kafka.tls.ca: ", "/nowhere/ca")
	f(newProcess(t, "dead_letters=/nowhere/dead.ndjson"), "cannot write the dead-letter file", "/nowhere", "dead_letters")
}

// TestStartErrorsAreLogged checks that errors at startup are logged in the configured format,
// invalid settings one per line.
func TestStartErrorsAreLogged(t *testing.T) {
	f := func(format string, settings ...string) (lines []string) {
		t.Helper()
		code, log := newProcess(t, append(settings, "log.format="+format)...).start().End()
		require.Equal(t, 1, code, log)
		for line := range strings.Lines(log) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	requireJSON := func(line, message, reason string) {
		t.Helper()
		var entry struct{ Level, Message, Error string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.Equal(t, "error", entry.Level)
		require.Equal(t, message, entry.Message)
		require.Contains(t, entry.Error, reason)
	}
	lines := f("json", "kafka.toppic=x", "pipeline.max_body_bytes=0")
	require.Len(t, lines, 2)
	requireJSON(lines[0], "cannot use the configuration", `unknown key "kafka.toppic" (--set): did you mean "kafka.topic"?`)
	requireJSON(lines[1], "cannot use the configuration", "pipeline.max_body_bytes is 0")
	lines = f("json", "journal.dir=/proc/nowhere")
	requireJSON(lines[len(lines)-1], "trafficd exits with an error", "journal.dir: ")
	lines = f("console", "pipeline.max_body_bytes=0")
	require.Len(t, lines, 1)
	require.Regexp(t, `^\d\d:\d\d:\d\d ERR cannot use the configuration error="pipeline.max_body_bytes is 0`, lines[0])
}

func TestCommandLine(t *testing.T) {
	f := func(wantCode int, want string, args ...string) {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		require.Equal(t, wantCode, cmd.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), want)
	}
	f(0, "the configuration is valid", "--check-config")
	f(1, `unknown key "log.levle"`, "--check-config", "--set", "log.levle=info")
	f(1, "log.level is \"loud\"", "--check-config", "--log-level", "loud")
	f(1, "cannot read the configuration", "--config", "missing.yaml")
	f(0, "level: debug # from --log-level", "--print-config", "--log-level", "debug")
	f(0, "listen: 127.0.0.1:8080", "--print-config")
	f(1, "use either --check-config or --print-config", "--print-config", "--check-config")
	f(0, "trafficd ", "version")
	f(0, "trafficd ", "--version")
	f(0, "TRAFFICD_SECTION__KEY", "--help")
	f(1, "clickhouse.enabled is false", "migrate", "--set", "clickhouse.enabled=false")
	f(1, "unknown command", "serv")
	f(1, `unexpected argument "deep": to check the stores too, use --check-config=deep`, "--check-config", "deep")
	f(0, "--check-config[=files|deep]  ", "--help")
}

func TestSecondSignalExitsImmediately(t *testing.T) {
	t.Parallel()
	// A kept connection prolongs the drain: the grace period is far longer than the test.
	d := newProcess(t, "api.drain_grace=1m", "shutdown_timeout=5m").start()
	d.Await(http.StatusOK)
	_, err := d.Post(t.Context(), `{"measurements":[]}`, "")
	require.NoError(t, err)
	d.signal(syscall.SIGTERM)
	d.awaitDraining()
	code, log := d.signal(syscall.SIGTERM).End()
	require.Equal(t, 1, code)
	require.Contains(t, log, "second signal")
}
