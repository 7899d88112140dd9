package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

// letters is a dead-letter file under construction.
type letters struct {
	t    *testing.T
	path string
}

func newLetters(t *testing.T) letters {
	return letters{t, filepath.Join(t.TempDir(), "dead-letters.ndjson")}
}

// add records that a store rejected the rows of the n-th batch.
func (l letters) add(sink, reason string, n int, of journalBatch) {
	l.t.Helper()
	var b batch.Batch
	require.NoError(l.t, batch.DecodeFrame(frameOf(n, of), &b, nil))
	block := batch.Block{{Batch: &b, Frame: uint64(n), To: b.Rows()}}
	require.NoError(l.t, pipeline.NewDeadLetters(l.path).Add(sink, batch.RejectedRows{Rows: block, Reason: errors.New(reason)}))
}

// append adds raw text, as a crash leaves it.
func (l letters) append(text string) {
	l.t.Helper()
	changeFile(l.t, l.path, func(b []byte) []byte { return append(b, text...) })
}

func (l letters) text() string { return textOf(l.t, l.path) }

func north(codes ...string) journalBatch {
	return journalBatch{Instance: "north", Codes: codes}
}

func TestDeadLetterList(t *testing.T) {
	l := newLetters(t)
	l.add("clickhouse", "code: 252,\n  too many parts", 1, north("A", "B"))
	l.add("kafka", "MESSAGE_TOO_LARGE", 2, journalBatch{Instance: "south", Codes: []string{"C"}})
	r := requireSuccess(t, "", "deadletter", "ls", l.path)
	require.Empty(t, r.err)
	got := lines(r.out)
	require.Equal(t, "sink at product instance detector type interval value reason", got[0])
	const interval = "2026-07-01T06:00:00Z/2026-07-01T06:05:00Z"
	require.Regexp(t, `^clickhouse \S+Z north A speed `+interval+` 0.5 code: 252, too many parts$`, got[1])
	require.Regexp(t, `^clickhouse \S+Z north B speed `+interval+` 1.5 code: 252, too many parts$`, got[2])
	require.Regexp(t, `^kafka \S+Z south C speed `+interval+` 0.5 MESSAGE_TOO_LARGE$`, got[3])
	require.Equal(t, []string{"", "3 dead letters"}, got[4:6])
	require.Regexp(t, `^2 clickhouse: code: 252, too many parts \(`, got[6])
	require.Regexp(t, `^1 kafka: MESSAGE_TOO_LARGE \(`, got[7])

	r = requireSuccess(t, "", "deadletter", "ls", l.path, "--json")
	require.Equal(t, l.text(), r.out, "the letters and nothing else")
}

// TestDeadLetterListOfManyReasons checks that the list of reasons is bounded.
func TestDeadLetterListOfManyReasons(t *testing.T) {
	l := newLetters(t)
	for n := range maxReasons + 20 {
		l.add("kafka", fmt.Sprint("value = ", n), n, north("A"))
	}
	r := requireSuccess(t, "", "deadletter", "ls", l.path)
	require.Contains(t, r.out, "120 dead letters")
	require.Regexp(t, `\n +20  kafka: other reasons \(`, r.out)
	require.Equal(t, maxReasons+1, strings.Count(r.out, "  kafka: "))
}

func TestDeadLetterListWithoutLetters(t *testing.T) {
	l := newLetters(t)
	r := requireFailure(t, "", "there may be none", "deadletter", "ls", l.path)
	require.Empty(t, r.out)
	require.NoError(t, os.WriteFile(l.path, nil, 0o600))
	r = requireSuccess(t, "", "deadletter", "ls", l.path)
	require.Equal(t, []string{"", "0 dead letters"}, lines(r.out))
}

// TestDeadLetterListAfterCrashes tests a list after crashes, which may truncate or duplicate a
// line.
func TestDeadLetterListAfterCrashes(t *testing.T) {
	l := newLetters(t)
	f := func(wantNotes int, want ...string) {
		t.Helper()
		r := requireSuccess(t, "", "deadletter", "ls", l.path, "--json")
		require.Equal(t, wantNotes, strings.Count(r.err, "is truncated"), r.err)
		var got []string
		for line := range strings.Lines(r.out) {
			var letter pipeline.DeadLetter
			require.NoError(t, json.Unmarshal([]byte(line), &letter))
			got = append(got, fmt.Sprintf("%s %s/%d", letter.Sink, letter.Item.DetectorCode, letter.Index))
		}
		require.Equal(t, want, got)
	}
	l.add("kafka", "r", 1, north("A", "B"))
	first := l.text()
	l.append(first) // duplicates of both
	f(0, "kafka A/0", "kafka B/1")
	l.add("clickhouse", "r", 1, north("A")) // a letter of another store
	f(0, "kafka A/0", "kafka B/1", "clickhouse A/0")

	whole := l.text()
	for n := 1; n < len(first)/2-1; n++ { // truncated anywhere in the first line
		require.NoError(t, os.WriteFile(l.path, []byte(whole+first[:n]), 0o640))
		f(1, "kafka A/0", "kafka B/1", "clickhouse A/0")
	}
	l.add("kafka", "r", 2, north("C")) // starts a new line
	f(1, "kafka A/0", "kafka B/1", "clickhouse A/0", "kafka C/0")
	l.append("\x00\x00\x00") // after a power failure
	f(2, "kafka A/0", "kafka B/1", "clickhouse A/0", "kafka C/0")
}

func TestDeadLetterOfSomethingElse(t *testing.T) {
	f := func(path, want string) {
		t.Helper()
		for _, args := range [][]string{{"ls", path}, {"resend", path, "--key", "k"}} {
			requireFailure(t, "", want, append([]string{"deadletter"}, args...)...)
		}
	}
	f("no-such-file", "no such file")
	f(file(t, "rejected.ndjson", `{"item":{"detectorCode":"A"},"index":0}`), "line 1 is not a dead letter: missing sink or item; for a file of rejected items")
	f(file(t, "day.csv", "a,b\n"), "line 1 is not a dead letter")
	f(file(t, "invalid.ndjson", `{"item":{"detectorCode":"A","timestampFrom":"2026-02-30T08:00:00Z"},"index":0}`), "for a file of rejected items use trafficctl resubmit")
	f(file(t, "odd", `{"sink":"kafka","item":{"detectorCode":"A"},"batchId":"7"}`), "batchId")
	f(file(t, "long", strings.Repeat("x", 2<<20)), "line 1 is not a dead letter")
}

func TestDeadLetterResend(t *testing.T) {
	l := newLetters(t)
	l.add("clickhouse", "r", 1, north("A", "B"))
	l.add("kafka", "r", 1, north("A")) // rejected by both stores: one measurement
	l.add("kafka", "r", 2, north("C"))
	l.append(l.text()[:50]) // truncated
	before := l.text()

	f := func(want []string, flags ...string) {
		t.Helper()
		d := newDaemon(t)
		r := requireSuccess(t, "", to(d, append([]string{"deadletter", "resend", l.path, "--json", "--concurrency", "1"}, flags...)...)...)
		require.Equal(t, float64(len(want)), summaryOf(t, r)["accepted"])
		require.Equal(t, want, texts(d))
		require.Contains(t, r.err, "product instance north")
		require.Equal(t, before, l.text(), "the file is unchanged")
	}
	const t0, t1 = "2026-07-01T06:00:00Z", "2026-07-01T06:05:00Z"
	a, b, c := wire("A", "speed", t0, t1, "0.5"), wire("B", "speed", t0, t1, "1.5"), wire("C", "speed", t0, t1, "0.5")
	f([]string{a, b, c})
	f([]string{a, b, c}, "--product-instance", "north")
	f([]string{a, c}, "--sink", "kafka")
	f([]string{a, b}, "--sink", "clickhouse")
	f([]string{b, c}, "--skip-rows", "1")
}

// TestDeadLetterResendOfSeveralInstances checks that one of several product instances must be
// selected, because a key belongs to one.
func TestDeadLetterResendOfSeveralInstances(t *testing.T) {
	l := newLetters(t)
	l.add("kafka", "r", 1, north("A"))
	l.add("kafka", "r", 2, journalBatch{Instance: "south", Codes: []string{"B"}})
	d := newDaemon(t)
	r := requireFailure(t, "", "2 product instances (north, south)", to(d, "deadletter", "resend", l.path)...)
	require.Contains(t, r.err, "--product-instance")
	require.Empty(t, d.Keys(), "nothing is sent")

	requireSuccess(t, "", to(d, "deadletter", "resend", l.path, "--product-instance", "south")...)
	require.Len(t, d.Items(), 1)
	require.Contains(t, texts(d)[0], `"B"`)

	requireFailure(t, "", "no dead letters in "+l.path+" of product instance west", to(d, "deadletter", "resend", l.path, "--product-instance", "west")...)
}

// TestDeadLetterResendWithNewInstance checks that lines of another product instance that the daemon
// adds after the instance was determined are not sent: the key belongs to another one.
func TestDeadLetterResendWithNewInstance(t *testing.T) {
	l := newLetters(t)
	l.add("kafka", "r", 1, north("A"))
	selected := selection{}
	require.NoError(t, selected.narrow(t.Context(), l.path))
	l.add("kafka", "r", 2, journalBatch{Instance: "south", Codes: []string{"B"}})
	var got []string
	for item, err := range selected.items(t.Context(), l.path, 0) {
		require.NoError(t, err)
		got = append(got, item.Detector)
	}
	require.Equal(t, []string{"A"}, got)
}

// TestDeadLetterRecords checks that records of the log are listed once for each store, and that
// they are not sent, with the reason.
func TestDeadLetterRecords(t *testing.T) {
	l := newLetters(t)
	dead := pipeline.NewDeadLetters(l.path)
	add := func(sink string, offset int64) {
		t.Helper()
		require.NoError(t, dead.AddRecord(sink, &durable.RecordError{
			Topic: "trafficd.log", Partition: 2, Offset: offset, Data: bytes.Repeat([]byte{0xff}, 2<<20), Reason: errors.New("wrong checksum"),
		}))
	}
	add("kafka", 7)
	add("kafka", 7) // after a crash
	add("clickhouse", 7)
	add("kafka", 9)
	d := newDaemon(t)
	const reason = "they are not intact batches, so they contain no measurements that could be sent; see the runbook, TrafficdRecordQuarantined"
	requireFailure(t, "", "cannot resend 4 records of the log in "+l.path+": "+reason, to(d, "deadletter", "resend", l.path)...)
	require.Empty(t, d.Keys())

	l.add("kafka", "r", 1, north("A"))
	r := requireSuccess(t, "", "deadletter", "ls", l.path)
	require.Contains(t, r.out, "record at offset 7 of partition 2 of topic trafficd.log (2,097,152 bytes): wrong checksum")
	require.Contains(t, r.out, "\n4 dead letters\n")
	require.Regexp(t, `2  kafka: wrong checksum \(`, r.out)
	r = requireSuccess(t, "", "deadletter", "ls", l.path, "--json")
	require.Equal(t, 4, strings.Count(r.out, "\n"))
	require.Equal(t, 3, strings.Count(r.out, `"record":{"topic":"trafficd.log","partition":2,"offset":`))

	r = requireSuccess(t, "", to(d, "deadletter", "resend", l.path)...)
	require.Len(t, d.Items(), 1)
	require.Contains(t, r.err, "not sending 4 records of the log: "+reason)
}

// TestDeadLettersMemory checks that the memory for recognising repeated lines is bounded.
func TestDeadLettersMemory(t *testing.T) {
	defer func(n int) { maxRecent = n }(maxRecent)
	maxRecent = 10
	var r recent[int]
	for i := range 100 {
		require.True(t, r.add(i))
		require.LessOrEqual(t, len(r.current)+len(r.previous), 2*maxRecent)
		for j := max(0, i-maxRecent+1); j <= i; j++ {
			require.False(t, r.add(j))
		}
	}
}

// TestDeadLetterResendRejected checks that rejected items are written to a file for resubmit.
func TestDeadLetterResendRejected(t *testing.T) {
	l := newLetters(t)
	l.add("kafka", "r", 1, north("A", "B"))
	d := newDaemon(t)
	d.Known = map[string]bool{"A": true}
	rejected := filepath.Join(t.TempDir(), "rejected.ndjson")
	r := runWith(t, "", to(d, "deadletter", "resend", l.path, "--rejected", rejected)...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Regexp(t, `accepted +1\n +rejected +1\n`, r.out)
	require.Contains(t, r.out, "UNKNOWN_DETECTOR, first line 2")
	require.Contains(t, textOf(t, rejected), `"detectorCode":"B"`)
}

// TestDeadLetterResendEnds checks that measurements that the store rejects again, so that the
// daemon adds them to the file, are not sent in the same run.
func TestDeadLetterResendEnds(t *testing.T) {
	l := newLetters(t)
	for n := range 10 {
		l.add("kafka", "MESSAGE_TOO_LARGE", n, north("A"))
	}
	d := newDaemon(t)
	d.Before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n < 50 {
			l.add("kafka", "MESSAGE_TOO_LARGE", 10+n, north("A"))
		}
		return false
	}
	requireSuccess(t, "", to(d, "deadletter", "resend", l.path, "--batch", "1", "--concurrency", "1")...)
	require.Len(t, d.Items(), 10)
}

// TestDeadLetterResendOfPipe checks that a pipe is an error: it would be empty when it is sent.
func TestDeadLetterResendOfPipe(t *testing.T) {
	l := newLetters(t)
	l.add("kafka", "MESSAGE_TOO_LARGE", 1, north("A"))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString(l.text())
	require.NoError(t, errors.Join(err, w.Close()))
	d := newDaemon(t)
	requireFailure(t, "", "must be a regular file", to(d, "deadletter", "resend", fmt.Sprintf("/dev/fd/%d", r.Fd()))...)
	requireFailure(t, "", "must be a regular file", to(d, "deadletter", "resend", "-")...)
	require.Equal(t, l.text(), requireSuccess(t, l.text(), "deadletter", "ls", "-", "--json").out)
}

func TestShort(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.Equal(t, want, short(text))
	}
	f("", "")
	f(" a\n\tb ", "a b")
	f("a\x1b[2J\u009bb\x00", "a\uFFFD[2J\uFFFDb\uFFFD")
	f(strings.Repeat("x", 160), strings.Repeat("x", 160))
	f(strings.Repeat("x", 161), strings.Repeat("x", 160)+"…")
	f(strings.Repeat("x", 159)+"üü", strings.Repeat("x", 159)+"…")
}
