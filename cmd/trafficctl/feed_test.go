package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
)

// published returns the path of a sample of a publication.
func published(name string) string {
	return filepath.Join("..", "..", "schemas", "feeds", "testdata", name)
}

func TestFeedCheck(t *testing.T) {
	out := requireSuccess(t, "", "feed", "check", published("fr-speeds.xml")).out
	for _, want := range []string{
		"format     bison-fute 2\n", "published  2026-07-25T06:24:00Z\n", "newest     ends 2026-07-25T06:30:00Z, ",
		"times      the end of an interval of 6m0s, unless the document says otherwise; but the newest ends 6m0s after the publication: check",
		"sites      0 described: 0 with a position, 0 without; 2 with values are not described\n", "values     4: 4 measured, 0 no vehicle, 0 fault, 0 skipped\n",
		"codes      2 flow\n", `first      {"detectorCode":"MUM76.h1","measureTypeCode":"flow","timestampFrom":"2026-07-25T06:24:00Z","timestampTo":"2026-07-25T06:30:00Z","value":1010}`,
	} {
		require.Contains(t, out, want)
	}
	out = requireSuccess(t, textOf(t, published("measured-v3.7.xml")), "feed", "check", "-", "--sites", published("site-table-v3.7.xml")).out
	require.Contains(t, out, `"measureTypeCode":"speed.lane1","timestampFrom":"2026-11-20T08:00:00Z","timestampTo":"2026-11-20T08:01:00Z","value":83.5,"quality":98}`)
	require.Contains(t, out, "reasons    1 fault: data_error\n")
	out = requireSuccess(t, "", "feed", "check", published("ndw-record.xml")).out
	require.Contains(t, out, "area    longitude 4.634289 to 4.634289, latitude 52.0263 to 52.0263\n")
}

// TestSendPublication sends the measurements of a publication to a daemon, as the feeder does.
func TestSendPublication(t *testing.T) {
	d := newDaemon(t)
	sent := requireSuccess(t, "", to(d, "send", published("hongkong.xml"), "--format", "hongkong")...)
	require.Contains(t, sent.err, "54 values: 33 measured, 3 no vehicle, 18 fault, 0 skipped")
	require.Len(t, d.Items(), 33)
	require.Contains(t, strings.Join(texts(d), "\n"), `"detectorCode":"AID01101","measureTypeCode":"speed.fast","timestampFrom":"2024-04-06T13:27:00Z"`)

	d = newDaemon(t)
	requireSuccess(t, "", to(d, "send", published("measured-v3.7.xml"), "--format", "datex2", "--sites", published("site-table-v3.7.xml"))...)
	all := strings.Join(texts(d), "\n")
	require.Contains(t, all, `"measureTypeCode":"speed.lane1"`)
	require.NotContains(t, all, `"measureTypeCode":"speed.i1"`)

	d = newDaemon(t)
	mapping := file(t, "rows.yaml", rowsExample)
	requireSuccess(t, "id,time,kmh,n\nA,2026-03-29 03:30:00,48,7\n",
		to(d, "send", "-", "--format", "rows", "--rows", mapping, "--period", "5m", "--zone", "Europe/Copenhagen")...)
	require.JSONEq(t, `{"detectorCode":"A","measureTypeCode":"flow","timestampFrom":"2026-03-29T01:30:00Z","timestampTo":"2026-03-29T01:35:00Z","value":84}`, texts(d)[1])

	out := requireSuccess(t, "", to(d, "send", published("fr-speeds.xml"), "--format", "bison-fute", "--dry-run", "--skip-rows", "3")...)
	require.Equal(t, 1, strings.Count(out.err, "detectorCode"))
	requireFailure(t, "", "--melt is for csv, json and ndjson", "send", published("hongkong.xml"), "--format", "hongkong", "--melt", "a=speed")
	requireFailure(t, "", "--sites requires the --format of a publication", "send", published("hongkong.xml"), "--sites", "x")
	requireFailure(t, "", "--separator requires CSV", "send", published("hongkong.xml"), "--format", "hongkong", "--separator", ";")
	requireFailure(t, "", "--rows: cannot read", "send", "-", "--format", "rows", "--rows", "missing.yaml")
	requireFailure(t, "", "--rows: rows need a mapping", "send", "-", "--format", "rows")
	requireFailure(t, "", "it has no time", to(d, "send", published("madrid-2018.xml"), "--format", "madrid")...)
	cut := bytes.TrimSpace([]byte(textOf(t, published("fr-speeds.xml"))))
	requireFailure(t, string(cut[:len(cut)-20]), "unexpected end of the document", to(d, "send", "-", "--format", "bison-fute")...)
}

func TestFeedSites(t *testing.T) {
	out := requireSuccess(t, "", "feed", "sites", published("ndw-record.xml")).out
	require.JSONEq(t, `[{"detectorCode":"PZH01_MST_0629_00","name":"N457 hmp 4.75 Re","longitude":4.634289,"latitude":52.0263,"lanes":1,`+
		`"side":"northWestBound","openlr":"CwNM3CT+Xhp8EPwXAl0aTKo=","version":"2"}]`, out)
	requireFailure(t, "", "describes no sites", "feed", "sites", published("fr-speeds.xml"))
}

// TestFeedFromAServer reads a document from a server that requires gzip and says when it was
// published.
func TestFeedFromAServer(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Second)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Accept-Encoding") != "gzip":
			w.WriteHeader(http.StatusNotAcceptable)
		case r.URL.Path == "/page":
			w.Write([]byte("<html><body>Index of /</body></html>"))
		case r.URL.Path == "/madrid.xml.gz":
			w.Header().Set("Last-Modified", at.Format(http.TimeFormat))
			text, _ := os.ReadFile(published("madrid-2018.xml"))
			z := gzip.NewWriter(w)
			z.Write(text)
			z.Close()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	out := requireSuccess(t, "", "feed", "check", server.URL+"/madrid.xml.gz").out
	require.Contains(t, out, "newest   ends "+at.Truncate(5*time.Minute).Format(time.RFC3339))
	requireFailure(t, "", "503 Service Unavailable", "feed", "check", server.URL+"/gone")
	requireFailure(t, "", "cannot recognize the format", "feed", "check", server.URL+"/page")
	requireFailure(t, "", "it is an HTML page", "feed", "check", server.URL+"/page", "--format", "ndw")
}

func TestFeedErrors(t *testing.T) {
	requireFailure(t, "", "no such file", "feed", "check", "missing.xml")
	requireFailure(t, "", `--format is "xls", must be one of ndw, `, "feed", "check", published("fr-speeds.xml"), "--format", "xls")
	requireFailure(t, "", `--time is "start", must be`, "feed", "check", published("fr-speeds.xml"), "--time", "start")
	requireFailure(t, "", `--zone is "X", must be`, "feed", "check", published("fr-speeds.xml"), "--zone", "X")
	requireFailure(t, "", `--published "now" must be`, "feed", "check", published("fr-speeds.xml"), "--published", "now")
	requireFailure(t, "", "it has no time", "feed", "check", published("madrid-2018.xml"))
	requireSuccess(t, "", "feed", "check", published("madrid-2018.xml"), "--published", "2026-11-01T08:00:00Z")
}

// TestFeedsPage runs each command of the page about real feeds with a sample of the document.
func TestFeedsPage(t *testing.T) {
	samples := map[string]string{
		"trafficspeed.xml.gz": "measured-v3.7.xml", "measurement_current.xml.gz": "site-table-v3.7.xml", "rawSpeedVol-all.xml": "hongkong.xml",
		"pm.xml": "madrid-2018.xml", "verkeersdata.xml": "miv-verkeersdata.xml", "miv_configuratie.xml": "miv-configuratie.xml",
		"sensors.geojson": "wzdx-sensors.geojson",
	}
	commands := 0
	for line := range strings.SplitSeq(textOf(t, filepath.Join("..", "..", "schemas", "feeds", "README.md")), "\n") {
		command, ok := strings.CutPrefix(line, "    trafficctl ")
		if !ok {
			continue
		}
		commands++
		args := strings.Fields(command)
		for i, word := range args {
			if sample, ok := samples[word]; ok {
				args[i] = published(sample)
			}
		}
		d := newDaemon(t)
		requireSuccess(t, "", to(d, args...)...)
		require.NotEmpty(t, d.Items(), command)
	}
	require.Equal(t, 5, commands)
}
