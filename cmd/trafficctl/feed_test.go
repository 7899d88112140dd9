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
		"times      the end of an interval of 6m0s, unless the document says otherwise; but the newest interval ends after the publication",
		"sites      2 with values, 0 described, 0 with a position\n", "values     4: 4 measured, 0 no vehicle, 0 fault, 0 skipped\n",
		"codes      2 flow\n", "first      MUM76.h1,flow,2026-07-25T06:24:00Z,2026-07-25T06:30:00Z,1010,\n",
	} {
		require.Contains(t, out, want)
	}
	out = requireSuccess(t, textOf(t, published("measured-v3.7.xml")), "feed", "check", "-", "--sites", published("site-table-v3.7.xml")).out
	require.Contains(t, out, "S-1,speed.lane1,2026-11-20T08:00:00Z,2026-11-20T08:01:00Z,83.5,98\n")
	require.Contains(t, out, "reasons    1 fault: data_error\n")
	out = requireSuccess(t, "", "feed", "check", published("ndw-record.xml")).out
	require.Contains(t, out, "area    longitude 4.634289 to 4.634289, latitude 52.0263 to 52.0263\n")
}

// TestFeedConvert sends the measurements of a publication to a daemon, as an operator would.
func TestFeedConvert(t *testing.T) {
	d := newDaemon(t)
	converted := requireSuccess(t, "", "feed", "convert", published("hongkong.xml"))
	require.Contains(t, converted.err, "values: ")
	requireSuccess(t, converted.out, to(d, "send", "-", "--format", "csv")...)
	require.Len(t, d.Items(), strings.Count(converted.out, "\n")-1)
	require.Contains(t, strings.Join(texts(d), "\n"), `"detectorCode":"AID01101","measureTypeCode":"speed.fast","timestampFrom":"2024-04-06T13:27:00Z"`)
}

func TestFeedSites(t *testing.T) {
	out := requireSuccess(t, "", "feed", "sites", published("ndw-record.xml")).out
	require.Equal(t, "detectorCode,street,longitude,latitude,lanes,side,version\nPZH01_MST_0629_00,N457 hmp 4.75 Re,4.634289,52.0263,1,northWestBound,2\n", out)
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
	requireFailure(t, "", "the server responds with 503 Service Unavailable", "feed", "check", server.URL+"/gone")
	requireFailure(t, "", "cannot recognize the format", "feed", "check", server.URL+"/page")
	requireFailure(t, "", "it is an HTML page", "feed", "check", server.URL+"/page", "--format", "ndw")
}

func TestFeedErrors(t *testing.T) {
	requireFailure(t, "", "no such file", "feed", "check", "missing.xml")
	requireFailure(t, "", `unknown format "xls"`, "feed", "check", published("fr-speeds.xml"), "--format", "xls")
	requireFailure(t, "", `--time "start" must be`, "feed", "check", published("fr-speeds.xml"), "--time", "start")
	requireFailure(t, "", `--zone "X" is not`, "feed", "check", published("fr-speeds.xml"), "--zone", "X")
	requireFailure(t, "", `--published "now" must be`, "feed", "check", published("fr-speeds.xml"), "--published", "now")
	requireFailure(t, "", "it has no time", "feed", "convert", published("madrid-2018.xml"))
	requireSuccess(t, "", "feed", "convert", published("madrid-2018.xml"), "--published", "2026-11-01T08:00:00Z")
	cut := bytes.TrimSpace([]byte(textOf(t, published("fr-speeds.xml"))))
	requireFailure(t, string(cut[:len(cut)-20]), "unexpected end of the document", "feed", "convert", "-")
}
