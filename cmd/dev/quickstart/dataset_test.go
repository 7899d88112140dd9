package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smallDataset writes a data set of two streets, each with an observation every five minutes for
// nine days. The speed depends on the hour, and the count on the minute.
func smallDataset(t *testing.T) (directory, profile string) {
	t.Helper()
	directory = t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(directory, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("d.csv", "node,id,lon1,lat1,lon2,lat2,metres\n11,7,10,56,10.01,56.01,1300\n12,8,10.01,56.01,10,56,1300\n")
	rows := "id,at,kmh,count\n"
	for at := time.Date(2014, 9, 15, 0, 0, 0, 0, time.UTC); at.Day() < 24; at = at.Add(interval) {
		for id := 7; id <= 8; id++ {
			rows += fmt.Sprintf("%d,%s,%d,%d\n", id, at.Format("2006-01-02T15:04:05"), 40+at.Hour(), 5+at.Minute())
		}
	}
	write("o.csv", rows)
	return directory, write("small.yaml", `
observations: o.csv
detectors: {file: d.csv, column: id, from: [lon1, lat1], to: [lon2, lat2], node: node, length: metres}
send: [--detector=id, --from=at, --interval=5m, --zone=UTC, "--melt=kmh=speed,count=flow"]
replay: {end: 2014-09-24, time: at, detector: id, speed: kmh}
`)
}

// TestDataset checks that a data set is shifted by whole weeks until it ends in more than a day,
// and the rows of the next day are replayed.
func TestDataset(t *testing.T) {
	directory, profile := smallDataset(t)
	live := filepath.Join(directory, "live.csv")
	now := time.Date(2026, 11, 24, 22, 57, 5, 0, time.UTC) // a Tuesday, like the last day of the data
	s, err := openDataset(directory, profile, live, now.AddDate(0, 0, -1))
	require.NoError(t, err)
	require.Equal(t, "7", s.example)
	monday := time.Date(2014, 9, 22, 22, 57, 5, 0, time.UTC)
	require.Equal(t, "--shift="+now.AddDate(0, 0, -1).Sub(monday).String(), s.flags[len(s.flags)-1])
	require.Contains(t, s.columns, `street: "id", fromnode: "node"`)
	f := func(now time.Time, kmh, count int) {
		t.Helper()
		args, err := s.live(now)
		require.NoError(t, err)
		require.Equal(t, []string{live, "--interval=5s"}, append(args[:1:1], args[len(args)-1]))
		text, err := os.ReadFile(live)
		require.NoError(t, err)
		at := now.Format(time.RFC3339)
		require.Equal(t, fmt.Sprintf("id,at,kmh,count\n7,%s,%d,%d\n8,%[1]s,%[2]d,%[3]d\nno-such-detector,%[1]s,%[2]d,%[3]d\n7,%[1]s,1e999,%[3]d\n",
			at, kmh, count), string(text))
	}
	f(now.AddDate(0, 0, -1), 62, 60)
	f(now.AddDate(0, 0, -1).Add(5*time.Second), 62, 60)
	f(now.Add(-time.Hour), 61, 60)
	f(now.Add(4*time.Minute), 63, 5) // the day is repeated
}

func TestDatasetErrors(t *testing.T) {
	f := func(file, from, to, want string) {
		t.Helper()
		directory, profile := smallDataset(t)
		path := filepath.Join(directory, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644))
		now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
		q := quickstart{options: options{data: directory, profile: profile}}
		err = q.checkData(t.Context())
		if err != nil {
			require.ErrorContains(t, err, want)
			return
		}
		s, err := openDataset(directory, profile, filepath.Join(directory, "live.csv"), now)
		if err == nil {
			_, err = s.live(now)
		}
		require.ErrorContains(t, err, want)
	}
	f("d.csv", ",id", ",ident", `no column "id"`)
	f("o.csv", "kmh", "mph", `no column "kmh"`)
	f("o.csv", "7,", "\"", "cannot read the day to replay")
	f("small.yaml", "2014-09-24", "2015-09-24", "no observations")
	f("small.yaml", "2014-09-24", "soon", `replay.end "soon" must be a date`)
	f("small.yaml", "o.csv", "p.csv", "must contain p.csv and d.csv; see ")
	f("small.yaml", "observations", "observation", "cannot parse the profile")
	f("small.yaml", "column: id", "column: ''", "must be set")
}
