package registry

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestDoubtfulEntries checks that a list with wrong positions or codes is used, and that the log
// and the status name the entries and the reasons.
func TestDoubtfulEntries(t *testing.T) {
	f := func(name, list string, want ...string) {
		t.Helper()
		feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: tempPath(t, name)}})
		var log bytes.Buffer
		feed.log = zerolog.New(&log)
		write(t, feed.source.(*fileSource).Path, list)
		feed.check(t.Context())
		status := feed.onlyList().status(time.Now())
		require.Empty(t, status.Error)
		require.Positive(t, status.Detectors)
		require.Equal(t, len(want), status.Doubtful)
		require.Equal(t, want, status.Warnings)
		require.Equal(t, len(want) > 0, strings.Contains(log.String(), "the detector list has doubtful entries"))
		feed.check(t.Context())
		require.LessOrEqual(t, strings.Count(log.String(), "doubtful entries"), 1)
	}
	f("a.csv", "detectorCode,longitude,latitude\nA,10.1,56.1\nB,,\nC,-180,-90\n")
	f("a.csv", "detectorCode,lon\nA,10.1\n", "line 2: lon is set, but the other coordinate is empty")
	f("a.csv", "detectorCode;longitude;latitude\nA;10,1;56,1\nB;10.1;56,1\n",
		`line 2: longitude is "10,1", must be a number of degrees such as 56.15`,
		`line 3: latitude is "56,1", must be a number of degrees such as 56.15`)
	f("a.csv", "detectorCode,lng,lat\nA,180.5,10\nB,35.6,139.7\nC,10.1,1e3\nD,0,0.0\nE,NaN,1\n",
		"line 2: lng 180.5 is not between -180 and 180",
		"line 3: lat 139.7 is not between -90 and 90: is it exchanged with the longitude?",
		"line 4: lat 1e3 is not between -90 and 90",
		"line 5: the position is 0, 0, in the Atlantic",
		"line 6: lng NaN is not between -180 and 180")
	f("a.csv", "detectorCode,longitude,latitude\nA,10.1,56.1\nB,10.2,56.2\nC,56.12,10.13\nD,10.2,56.1\nE,11,57\n",
		"line 4: longitude 56.12 and latitude 10.13 seem to be exchanged: the middle of the list is at 10.2 and 56.1")
	f("a.csv", "detectorCode,x\nA,\"1\n2\"\n\"4,71E+05\",1\n4.71E+05,1\n1E5,1\nE12,\n",
		`line 4: the code "4,71E+05" looks like a longer number that a spreadsheet has rounded: format the column as text`,
		`line 5: the code "4.71E+05" looks like a longer number that a spreadsheet has rounded: format the column as text`)
	f("a.csv", "detectorCode,x\nA,1\n,1\n"+strings.Repeat("B", 257)+",1\n",
		"line 3: left out: the code has 0 bytes, must have 1 to 256",
		"line 4: left out: the code has 257 bytes, must have 1 to 256")
	f("a.json", `[{"detectorCode":"A","longitude":10.1,"latitude":95},{"detectorCode":"B","longitude":"x","latitude":1}]`,
		"entry 0: latitude 95 is not between -90 and 90: is it exchanged with the longitude?",
		`entry 1: longitude is "x", must be a number of degrees such as 56.15`)
}

// TestManyDoubtfulEntries checks that the first ten are described and all are counted, for a shared
// list too, and that a corrected list clears them.
func TestManyDoubtfulEntries(t *testing.T) {
	path := tempPath(t, "list.csv")
	cfg := testConfig(FeedConfig{InstanceColumn: "tenant", File: &FileConfig{Path: path}})
	feed := newFeed(cfg, cfg.Feeds[0].withDefaults(), zerolog.Nop())
	t.Cleanup(feed.source.close)
	list := func(latitude string) string {
		var b strings.Builder
		b.WriteString("tenant;detectorCode;longitude;latitude\n")
		for i := range 40 {
			fmt.Fprintf(&b, "town%d;D%d;10.1;%s\n", i%2, i, latitude)
		}
		return b.String()
	}
	write(t, path, list("56,1"))
	feed.check(t.Context())
	all := feed.status(time.Now())
	require.Equal(t, []int{40, 20, 20}, []int{all[0].Doubtful, all[1].Doubtful, all[2].Doubtful})
	require.Len(t, all[0].Warnings, 10)
	require.Equal(t, `town0: line 2: latitude is "56,1", must be a number of degrees such as 56.15`, all[0].Warnings[0])
	require.Len(t, all[1].Warnings, 10)
	write(t, path, list("56.10"))
	feed.check(t.Context())
	for _, s := range feed.status(time.Now()) {
		require.Zero(t, s.Doubtful, "the codes are the same")
		require.Empty(t, s.Warnings)
	}
}

// TestPositionColumns checks that the view of detectors reads the same columns, in the same order.
func TestPositionColumns(t *testing.T) {
	sql, err := os.ReadFile("../../schemas/clickhouse/migrations/0002_views.sql")
	require.NoError(t, err)
	for _, names := range [][]string{longitudes, latitudes} {
		last := len(names) - 1
		want := ""
		for _, name := range names[:last] {
			want += fmt.Sprintf("nullIf(attributes['%s'], ''), ", name)
		}
		require.Contains(t, string(sql), "coalesce("+want+fmt.Sprintf("attributes['%s'])", names[last]))
	}
}
