package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/send"
)

const wideCSV = "report_id,timestamp,avg_speed_kmh,vehicle_count\n" +
	"158324,2014-08-01T07:50:00,50,5\n" +
	"158324,2014-08-01T07:55:00,,6\n"

func wire(detector, kind, from, to, value string) string {
	return fmt.Sprintf(`{"detectorCode":"%s","measureTypeCode":"%s","timestampFrom":"%s","timestampTo":"%s","value":%s}`, detector, kind, from, to, value)
}

var meltFlags = []string{
	"--detector", "report_id", "--from", "timestamp", "--interval", "5m",
	"--melt", "avg_speed_kmh=speed,vehicle_count=flow",
}

func TestSendMelt(t *testing.T) {
	d := newDaemon(t)
	path := file(t, "wide.csv", wideCSV)
	r := requireSuccess(t, "", to(d, append([]string{"send", path, "--json"}, meltFlags...)...)...)
	require.Equal(t, []string{
		wire("158324", "speed", "2014-08-01T07:50:00Z", "2014-08-01T07:55:00Z", "50"),
		wire("158324", "flow", "2014-08-01T07:50:00Z", "2014-08-01T07:55:00Z", "5"),
		wire("158324", "flow", "2014-08-01T07:55:00Z", "2014-08-01T08:00:00Z", "6"),
	}, texts(d))
	sum := summaryOf(t, r)
	for name, want := range map[string]float64{"accepted": 3, "rejected": 0, "batches": 1, "retries": 0, "empty": 1, "bad_rows": 0} {
		require.Equal(t, want, sum[name], name)
	}
	require.Contains(t, sum, "seconds")
	require.Contains(t, sum, "items_per_second")
}

// TestSendNothing checks that an empty input is not mistaken for one whose measurements were sent.
func TestSendNothing(t *testing.T) {
	d := newDaemon(t)
	for _, text := range []string{"", "detectorCode,measureTypeCode,timestampFrom,timestampTo,value\n", `{"measurements":[]}`} {
		require.Contains(t, requireSuccess(t, text, to(d, "send", "-")...).out, "There was nothing to send.\n")
	}
}

// TestSendFlags tests each flag of the mapping, from the command line to the wire.
func TestSendFlags(t *testing.T) {
	f := func(stdin, want string, flags ...string) {
		t.Helper()
		d := newDaemon(t)
		requireSuccess(t, stdin, to(d, append([]string{"send", "-", "--format", "csv"}, flags...)...)...)
		require.Equal(t, []string{want}, texts(d))
	}
	const t0, t1 = "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z"
	want := wire("D", "speed", t0, t1, "1.5")
	const header = "detectorCode,measureTypeCode,timestampFrom,timestampTo,value\n"
	f(header+"D,speed,"+t0+","+t1+",1.5\n", want)
	f("id,measureTypeCode,timestampFrom,timestampTo,value\nD,speed,"+t0+","+t1+",1.5\n", want, "--detector", "id")
	f("detectorCode,kind,timestampFrom,timestampTo,value\nD,speed,"+t0+","+t1+",1.5\n", want, "--type", "kind")
	f("detectorCode,timestampFrom,timestampTo,value\nD,"+t0+","+t1+",1.5\n", want, "--type", "=speed")
	f("detectorCode,measureTypeCode,a,b,value\nD,speed,"+t0+","+t1+",1.5\n", want, "--from", "a", "--to", "b")
	f("detectorCode,measureTypeCode,timestampFrom,value\nD,speed,"+t0+",1.5\n", want, "--interval", "5m")
	f("detectorCode,measureTypeCode,timestampFrom,timestampTo,v\nD,speed,"+t0+","+t1+",1.5\n", want, "--value", "v")
	f("detectorCode,measureTypeCode,timestampFrom,timestampTo,value,q\nD,speed,"+t0+","+t1+",1.5,1\n",
		strings.TrimSuffix(want, "}")+`,"quality":1}`, "--quality", "q")
	f(strings.ReplaceAll(header, ",", ";")+"D;speed;"+t0+";"+t1+";1,5\n", want, "--separator", ";", "--decimal", ",")
	f(strings.ReplaceAll(header, ",", "\t")+"D\tspeed\t"+t0+"\t"+t1+"\t1.5\n", want, "--separator", "tab")
	f("D,speed,"+t0+","+t1+",1.5\n", want, "--columns", "detectorCode,measureTypeCode,timestampFrom,timestampTo,value")
	f(header+"D,speed,2026-07-01 08:00,2026-07-01 08:05,1.5\n", want, "--zone", "Europe/Copenhagen")
	f(header+"D,speed,01.07.2026 06:00,01.07.2026 06:05,1.5\n", want, "--time-layout", "02.01.2006 15:04")
	f(header+"D,speed,2026-10-25 02:30,2026-10-25 03:00,1\n", wire("D", "speed", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z", "1"),
		"--zone", "Europe/Copenhagen", "--dst-overlap", "second")
	f(header+"gone\nD,speed,"+t0+","+t1+",1.5\n", want, "--skip-rows", "1")
}

func TestSendBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		r := requireFailure(t, wideCSV, want, append([]string{"send", "--url", "http://127.0.0.1:1"}, args...)...)
		require.Equal(t, 1, strings.Count(r.err, "trafficctl:"), "printed once: %s", r.err)
	}
	t.Setenv(envKey, "")
	f("missing API key")
	f("--key-file", "--key", "a", "--key-file", "b")
	f("cannot read --key-file", "--key-file", "no-such-file")
	f("--on-bad-row", "--on-bad-row", "wait", "--key", "k")
	f("must be an http or https URL", "--url", "127.0.0.1:8080", "--key", "k")
	f("must be an http or https URL", "--url", "ftp://host", "--key", "k")
	f("invalid API key", "--key", "a\nb")
	f("--rejected must be a file", "--rejected", "-", "--key", "k")
	f("--batch 0 must be", "--batch", "0", "--key", "k")
	f("--batch 140001 must be", "--batch", "140001", "--key", "k")
	f("--concurrency 0 must be", "--concurrency", "0", "--key", "k")
	f("--timeout 0s must be", "--timeout", "0", "--key", "k")
	f("--retry-for -1s must be", "--retry-for", "-1s", "--key", "k")
	f("--retry-for 2h0m0s must be", "--retry-for", "2h", "--key", "k")
	f("--zone", "--zone", "Mars/Olympus", "--key", "k")
	f("--melt", "--melt", "speed", "--key", "k")
	f("use either --melt or --type and --value", "--melt", "a=b", "--value", "v", "--key", "k")
	f("--separator", "--separator", "ab", "--key", "k")
	f("--decimal", "--decimal", "..", "--key", "k")
	f("use either --to or --interval", "--to", "a", "--interval", "5m", "--key", "k")
	f("no such file", "no-such-file.csv", "--key", "k")
	f("cannot create", "--rejected", "no/such/directory/f", "--key", "k")
}

// TestSendKey checks that the key is taken from the flag, the file or the environment, in that
// order.
func TestSendKey(t *testing.T) {
	d := newDaemon(t)
	t.Setenv(envKey, testKey)
	t.Setenv(envURL, d.URL)
	item := wire("D", "speed", "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z", "1")
	requireSuccess(t, item, "send")
	requireSuccess(t, item, "send", "--key-file", file(t, "key", testKey+"\nmore\n"))
	r := requireFailure(t, item, "401 GENERAL_UNAUTHENTICATED", "send", "--key", "another")
	require.Contains(t, r.err, "trafficctl key new")
	require.Len(t, d.Items(), 2)
}

// TestRejectedRoundTrip checks that rejected items are written to a file, corrected and
// resubmitted; those that are rejected again are written to another file.
func TestRejectedRoundTrip(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{"A": true}
	const t0, t1 = "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z"
	lines := wire("A", "speed", t0, t1, "1") + "\n" + wire("B", "speed", t0, t1, "2") + "\n" +
		`{"detectorCode":"A","linkId":"x"}` + "\n5\n"
	rejected := filepath.Join(t.TempDir(), "rejected.ndjson")
	r := runWith(t, lines, to(d, "send", "--rejected", rejected)...)
	require.Equal(t, exitRejected, r.code)
	require.Empty(t, r.err)
	require.Regexp(t, `accepted +1\n +rejected +3\n`, r.out)
	for _, want := range []string{"UNKNOWN_DETECTOR, first line 2", "RESERVED_FIELD, first line 3", "INVALID_TYPE, first line 4", "trafficctl resubmit " + rejected} {
		require.Contains(t, r.out, want)
	}
	text := textOf(t, rejected)
	require.Equal(t, 3, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		require.True(t, json.Valid([]byte(line)))
	}

	corrected := file(t, "corrected.ndjson", strings.ReplaceAll(text, `"B"`, `"A"`))
	again := filepath.Join(t.TempDir(), "again.ndjson")
	r = runWith(t, "", to(d, "resubmit", corrected, "--rejected", again, "--json")...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Equal(t, 1.0, summaryOf(t, r)["accepted"])
	require.Contains(t, texts(d), wire("A", "speed", t0, t1, "2"))
	require.Equal(t, 2, strings.Count(textOf(t, again), "\n"))
}

// TestDuplicates checks that the summary counts measurements that replace one of the same batch.
func TestDuplicates(t *testing.T) {
	d := newDaemon(t)
	lane := wire("A", "speed", "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z", "2") + "\n"
	r := requireSuccess(t, lane+lane+lane, to(d, "send")...)
	require.Regexp(t, `replaced by a later one of the batch +2\n`, r.out)
	r = requireSuccess(t, lane+lane+lane, to(d, "send", "--json")...)
	require.Equal(t, 2.0, summaryOf(t, r)["duplicates"])
}

// TestSummaryEscapes checks that a rejected item cannot control the terminal.
func TestSummaryEscapes(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{}
	r := runWith(t, wire(`B\u001b[2J`, "speed", "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z", "2"), to(d, "send")...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Contains(t, r.out, "B\uFFFD[2J")
	require.NotContains(t, r.out, "\x1b")
}

// TestRejectedFileIsKept checks that a file of rejected items is never overwritten.
func TestRejectedFileIsKept(t *testing.T) {
	d := newDaemon(t)
	kept := file(t, "rejected.ndjson", `{"item":5}`)
	requireFailure(t, "", "already exists", to(d, "resubmit", kept, "--rejected", kept)...)
	require.Equal(t, `{"item":5}`, textOf(t, kept))
	require.Empty(t, d.Keys())

	empty := file(t, "empty.ndjson", "") // left by a run that failed early
	requireSuccess(t, "", to(d, "send", "--rejected", empty)...)
}

// TestSendBadRow checks that a bad row stops the run after the rows before it, and the summary
// says how to resume. If bad rows are skipped, the exit code is 2.
func TestSendBadRow(t *testing.T) {
	d := newDaemon(t)
	text := wideCSV + "158324,yesterday,1,1\n" + "158324,2014-08-01T08:05:00,1,1\n"
	r := requireFailure(t, text, `cannot read a row: line 4: column timestamp: "yesterday"`, to(d, append([]string{"send"}, meltFlags...)...)...)
	require.Contains(t, r.err, "(--on-bad-row skip skips such rows)")
	require.Contains(t, r.out, "--skip-rows 2")
	require.Len(t, d.Items(), 3)
	r = runWith(t, text, to(d, append([]string{"send", "--on-bad-row", "skip", "--skip-rows", "2"}, meltFlags...)...)...)
	require.Equal(t, exitRejected, r.code)
	require.Contains(t, r.err, "skipped line 4")
	require.Len(t, d.Items(), 5)
}

// TestSendFailsInSkippedRows checks that an input that fails among the skipped rows does not undo
// the progress of the earlier run.
func TestSendFailsInSkippedRows(t *testing.T) {
	d := newDaemon(t)
	args := to(d, append([]string{"send", "--skip-rows", "9"}, meltFlags...)...)
	r := requireFailure(t, wideCSV+strings.Repeat("x", 2<<20), "exceeds", args...)
	require.Contains(t, r.out, "--skip-rows 9;")
	r = requireFailure(t, wideCSV+strings.Repeat("x", 2<<20), "exceeds", append(args, "--json")...)
	require.Equal(t, 10.0, summaryOf(t, r)["resume_row"])
}

// TestSendInterrupted checks that the summary is printed after an interrupt.
func TestSendInterrupted(t *testing.T) {
	d := newDaemon(t)
	ctx, interrupt := context.WithCancelCause(context.Background())
	d.Before = func(int, http.ResponseWriter, *http.Request) bool {
		interrupt(errors.New("the signal")) // as signal.NotifyContext does
		return false
	}
	var out, errs bytes.Buffer
	path := file(t, "wide.csv", wideCSV)
	args := to(d, append([]string{"send", path, "--batch", "1", "--json"}, meltFlags...)...)
	code := run(ctx, args, streams{strings.NewReader(""), &out, &errs})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "interrupted (the signal)")
	sum := summaryOf(t, result{out: out.String()})
	require.Equal(t, 1.0, sum["accepted"])
	require.Equal(t, 1.0, sum["resume_row"], "the second measurement of row 1 is not acknowledged")
}

// TestProgressLines checks that progress is printed as lines without a terminal.
func TestProgressLines(t *testing.T) {
	var w bytes.Buffer
	p := newProgress(&w, false, 10e6)
	tally := send.Tally{Accepted: 1990, Rejected: 10}
	line := sendingText(tally, time.Second) + ", " + megabytes(5e6, 10e6) + " of input read"
	p.show(5e6, "", line) // too early
	p.lastLine = time.Time{}
	p.show(5e6, "", line)
	p.note("wait")
	require.Equal(t, "trafficctl: 2,000 items, 2,000/s, 10 rejected, 5.0 of 10.0 MB (50%) of input read\ntrafficctl: wait\n", w.String())
}

// TestSendDryRun checks that a dry run reads the whole input, reports what the daemon would reject,
// and stores nothing.
func TestSendDryRun(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{"158324": true}
	path := file(t, "wide.csv", "report_id,timestamp,avg_speed_kmh,vehicle_count\n158324,yesterday,1,1\n"+strings.SplitN(wideCSV, "\n", 2)[1])
	args := to(d, append([]string{"send", path, "--dry-run"}, meltFlags...)...)
	r := runWith(t, "", args...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Regexp(t, `accepted +3\n +rejected +0\n`, r.out)
	require.Regexp(t, `unreadable rows skipped +1\n`, r.out)
	require.Contains(t, r.out, "This was a dry run: the daemon stored nothing.")
	require.Contains(t, r.err, "trafficctl: "+wire("158324", "speed", "2014-08-01T07:50:00Z", "2014-08-01T07:55:00Z", "50")+"\n")
	require.Contains(t, r.err, `line 2: column timestamp: "yesterday"`)
	require.Empty(t, d.Batches())

	// All errors of an item.
	rejected := filepath.Join(t.TempDir(), "rejected.ndjson")
	wrong := `{"detectorCode":"A","measureTypeCode":"","timestampFrom":"2014-08-01T07:55:00Z","timestampTo":"2014-08-01T07:50:00Z","value":1}`
	r = runWith(t, wrong, to(d, "send", "-", "--format", "ndjson", "--dry-run", "--all-errors", "--rejected", rejected, "--json")...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Contains(t, r.out, `"dry_run":true,"accepted":0,"rejected":1,"batches":1,`)
	require.Contains(t, r.out, `"codes":{"INVALID_INTERVAL":1,"UNKNOWN_DETECTOR":1,"UNKNOWN_MEASURE_TYPE":1}`)
	require.Equal(t, 3, strings.Count(textOf(t, rejected), "\n"))
	require.Empty(t, d.Batches())

	requireFailure(t, wrong, "--all-errors requires --dry-run", to(d, "send", "-", "--format", "ndjson", "--all-errors")...)
	requireFailure(t, "", `--on-bad-row "ignore" must be stop or skip`, "send", path, "--dry-run", "--on-bad-row", "ignore")

	// A proxy that removes the header.
	d.Before = func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Prefer"); return false }
	requireFailure(t, "", "the daemon has stored a batch of the dry run", args...)
	require.Len(t, d.Batches(), 1, "it is not repeated")
}

// TestSendDetectorsFromHeader tests a table with a column per detector.
func TestSendDetectorsFromHeader(t *testing.T) {
	d := newDaemon(t)
	path := file(t, "speeds.csv", "at,A,B\n2014-08-01T08:00,50,60\n2014-08-01T08:05,,70\n")
	flags := []string{"--detectors-from-header", "--interval", "5m", "--type", "=speed", "--zone", "Europe/Copenhagen"}
	requireSuccess(t, "", to(d, append([]string{"send", path}, flags...)...)...)
	require.ElementsMatch(t, []string{
		wire("A", "speed", "2014-08-01T06:00:00Z", "2014-08-01T06:05:00Z", "50"),
		wire("B", "speed", "2014-08-01T06:00:00Z", "2014-08-01T06:05:00Z", "60"),
		wire("B", "speed", "2014-08-01T06:05:00Z", "2014-08-01T06:10:00Z", "70"),
	}, texts(d))
	requireFailure(t, "", "use either --detectors-from-header or --detector", append([]string{"send", path, "--dry-run", "--detector", "x"}, flags...)...)
}

// BenchmarkSendMelt measures the whole path of a wide CSV file on one core (-cpu 1), the receiving
// server included: it only reads the bodies.
func BenchmarkSendMelt(b *testing.B) {
	const rows = 70_000 // ten full batches
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusMultiStatus)
		io.WriteString(w, `{"accepted":14000,"rejected":0,"rejections":[]}`)
	}))
	defer server.Close()
	var text bytes.Buffer
	text.WriteString("report_id,timestamp,avg_speed_kmh,vehicle_count\n")
	at := time.Date(2014, 8, 1, 7, 50, 0, 0, time.UTC)
	for i := range rows {
		fmt.Fprintf(&text, "%d,%s,%d,%d\n", 158324+i/17_000, at.Add(time.Duration(i%17_000)*5*time.Minute).Format("2006-01-02T15:04:05"), 30+i*7%50, i*3%11)
	}
	path := file(b, "wide.csv", text.String())
	args := append([]string{"send", path, "--quiet", "--url", server.URL, "--key", "k"}, meltFlags...)
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if r := runWith(b, "", args...); r.code != 0 {
			b.Fatal(r.err)
		}
	}
	b.ReportMetric(float64(b.N)*2*rows/b.Elapsed().Seconds(), "items/s")
}
