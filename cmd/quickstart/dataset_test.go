package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// smallDataset writes a data set of two streets, each with four observations on one day and one on the next.
func smallDataset(t *testing.T) (folder, profile string) {
	t.Helper()
	folder = t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("d.csv", "node,id,lon1,lat1,lon2,lat2,metres,kmh\n11,7,10,56,10.01,56.01,1300,50\n12,8,10.01,56.01,10,56,1300,60\n")
	rows := "id,at,kmh,count\n"
	for _, at := range []string{"2014-09-23T00:00:00,41,1", "2014-09-23T06:00:00,42,2", "2014-09-23T12:00:00,43,3", "2014-09-23T18:00:00,44,4", "2014-09-24T00:00:00,45,5"} {
		rows += "7," + at + "\n8," + at + "\n"
	}
	write("o.csv", rows)
	return folder, write("small.yaml", `
observations: o.csv
detectors: {file: d.csv, column: id, from: [lon1, lat1], to: [lon2, lat2], node: node, length: metres, speed: kmh}
send: [--detector=id, --from=at, --interval=5m, --zone=UTC, "--melt=kmh=speed,count=flow"]
replay: {day: 2014-09-23, time: at, detector: id, speed: kmh}
`)
}

// The streets of a data set are those of its detectors. Their forecasts are the last speeds, and a day is replayed from its
// second quarter on, again and again.
func TestDataset(t *testing.T) {
	folder, profile := smallDataset(t)
	live, file := filepath.Join(folder, "live.csv"), filepath.Join(folder, "f.pb")
	s, err := openDataset("", folder, profile, live)
	require.NoError(t, err)
	require.Equal(t, "7", s.example)
	now := time.Date(2026, 11, 20, 8, 0, 5, 0, time.UTC)
	speeds := func() (all []float64) {
		require.NoError(t, s.forecasts(t.Context(), now, file))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var layer pb.StreetForecastResponse
		require.NoError(t, proto.Unmarshal(text, &layer))
		require.Len(t, layer.StreetForecast, 2)
		for i, street := range layer.StreetForecast {
			require.EqualValues(t, 7+i, street.Street)
			require.EqualValues(t, 11+i, street.Fromnode)
			line, err := openlr.Decode(street.OpenLRcode)
			require.NoError(t, err)
			require.InDelta(t, 10+0.01*float64(i), line.Points[0].Lon, 3e-5)
			require.InDelta(t, 10+0.01*float64(1-i), line.Points[1].Lon, 3e-5)
			require.Len(t, street.Forecast, 1)
			require.Equal(t, "2026-11-20T08:00:05Z", street.Forecast[0].Start)
			require.Equal(t, "2026-11-20T10:00:05Z", street.Forecast[0].End)
			all = append(all, street.Forecast[0].Speed)
		}
		return all
	}
	require.Equal(t, []float64{50, 60}, speeds(), "those of the registry, until one is measured")
	for _, want := range []string{"42,2", "43,3", "44,4", "41,1", "42,2"} {
		args, err := s.live(now)
		require.NoError(t, err)
		require.Equal(t, []string{"send", live, "--interval=5s"}, append(args[:2:2], args[len(args)-1]))
		text, err := os.ReadFile(live)
		require.NoError(t, err)
		at, count, _ := strings.Cut(want, ",")
		require.Equal(t, "id,at,kmh,count\n7,2026-11-20T08:00:05Z,"+want+"\n8,2026-11-20T08:00:05Z,"+want+
			"\nno-such-detector,2026-11-20T08:00:05Z,"+want+"\n7,2026-11-20T08:00:05Z,1e999,"+count+"\n", string(text))
		require.Equal(t, []float64{float64(at[0]-'0')*10 + float64(at[1]-'0')}, speeds()[:1])
	}
}

func TestDatasetErrors(t *testing.T) {
	f := func(file, from, to, want string) {
		t.Helper()
		folder, profile := smallDataset(t)
		path := filepath.Join(folder, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644))
		s, err := openDataset("", folder, profile, filepath.Join(folder, "live.csv"))
		if err == nil {
			_, err = s.live(time.Now())
		}
		require.ErrorContains(t, err, want)
	}
	f("d.csv", "lon1", "lon", `no column "lon1"`)
	f("d.csv", "56.01", "north", `detector "7"`)
	f("d.csv", "56.01", "96.01", "latitude 96.01")
	f("o.csv", "kmh", "mph", `no column "kmh"`)
	f("o.csv", "7,", "\"", "cannot read the day 2014-09-23 to replay")
	f("small.yaml", "2014-09-23", "2015-09-23", "it has no observations")
	f("small.yaml", "o.csv", "p.csv", "cannot find the data")
}
