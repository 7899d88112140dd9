package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSniff checks that the command that --sniff prints sends the table of a German spreadsheet.
func TestSniff(t *testing.T) {
	path := file(t, "zählung.csv", "\ufeffsep=;\r\nMessstelle;Bezeichnung;Beginn;Anzahl Kfz;Geschwindigkeit [km/h]\r\n"+
		"0815;Hauptstraße Süd;27.11.2026 08:00;312;47,5\r\n;;;;\r\n4711;Ring;27.11.2026 08:05;1;51\r\n;;;;\r\n")
	r := requireSuccess(t, "", "send", "--sniff", path)
	require.Contains(t, r.out, "separator   semicolon\ndecimals    comma\n")
	require.Contains(t, r.out, "Which clock wrote them?")
	command := regexp.MustCompile(`(?m)^  trafficctl (send .*)$`).FindStringSubmatch(r.out)[1]
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	d := newDaemon(t)
	t.Chdir(t.TempDir()) // the command writes rejected.ndjson
	requireFailure(t, "", "unknown time zone ZONE", to(d, args...)...)
	for i := range args {
		args[i] = strings.Replace(args[i], "ZONE", "Europe/Berlin", 1)
	}
	require.Regexp(t, `accepted +4\n`, requireSuccess(t, "", to(d, append(args, "--dry-run")...)...).out)
	require.Empty(t, d.Batches())
	sent := requireSuccess(t, "", to(d, append(args, "--concurrency", "1")...)...)
	require.Regexp(t, `accepted +4\n`, sent.out)
	require.Regexp(t, `blank rows skipped +3\n`, sent.out)
	require.Equal(t, []string{
		wire("0815", "flow", "2026-11-27T07:00:00Z", "2026-11-27T07:05:00Z", "312"), wire("0815", "speed", "2026-11-27T07:00:00Z", "2026-11-27T07:05:00Z", "47.5"),
		wire("4711", "flow", "2026-11-27T07:05:00Z", "2026-11-27T07:10:00Z", "1"), wire("4711", "speed", "2026-11-27T07:05:00Z", "2026-11-27T07:10:00Z", "51"),
	}, texts(d))
}

// TestTakenAsUTC checks that the summary says that times without an offset were taken as UTC.
func TestTakenAsUTC(t *testing.T) {
	d := newDaemon(t)
	const text = "detectorCode,measureTypeCode,timestampFrom,timestampTo,value\nD,speed,2026-11-01 08:00,2026-11-01 08:05,1\n"
	r := requireSuccess(t, text, to(d, "send", "-")...)
	require.Regexp(t, `times without an offset, taken as UTC +2\n`, r.out)
	require.Contains(t, r.out, "If the times are local, set --zone")
	require.EqualValues(t, 2, summaryOf(t, requireSuccess(t, text, to(d, "send", "-", "--json")...))["taken_as_utc"])
	require.NotContains(t, requireSuccess(t, text, to(d, "send", "-", "--zone", "UTC")...).out, "UTC")
}

// TestRejectedDetectors checks that the summary groups rejections by detector, and that it names
// the codes from which a spreadsheet has removed zeros.
func TestRejectedDetectors(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{"0815": true}
	const times = ",speed,2026-11-01T08:00:00Z,2026-11-01T08:05:00Z,1\n"
	text := "detectorCode,measureTypeCode,timestampFrom,timestampTo,value\n" + strings.Repeat("815"+times, 3) + strings.Repeat("158324"+times, 2) +
		"0815" + times + "0815,no type" + times[6:]
	r := runWith(t, text, to(d, "send", "-")...)
	require.Equal(t, exitRejected, r.code)
	require.Contains(t, r.out, "       5  UNKNOWN_DETECTOR, first line 2: detectorCode \"815\" does not exist in product instance city; did you mean \"0815\"?\n"+
		"              2 detectors: 815 → 0815, 158324; ask the operator to list them, or correct those that have another form in the registry (→)\n")
	require.Contains(t, r.out, "              1 detector: 0815\n")
}
