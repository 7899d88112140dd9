package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/feeds"
)

// smallPublication has a site with two lanes, the first of which has classes, and one with a single
// lane whose detector has failed.
const smallPublication = `<d2LogicalModel xmlns="http://datex2.eu/schema/2/2_0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" modelBaseVersion="2">
<exchange><supplierIdentification><country>nl</country><nationalIdentifier>NLNDW</nationalIdentifier></supplierIdentification></exchange>
<payloadPublication xsi:type="MeasuredDataPublication"><publicationTime>2025-08-15T21:49:42.016Z</publicationTime>
<siteMeasurements><measurementSiteReference id="RWS01_MONIBAS_0021hrl0339ra" version="1"/><measurementTimeDefault>2025-08-15T21:48:00Z</measurementTimeDefault>
<measuredValue index="1"><measuredValue><basicData xsi:type="TrafficFlow"><vehicleFlow><vehicleFlowRate>60</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
<measuredValue index="2"><measuredValue><basicData xsi:type="TrafficFlow"><vehicleFlow><vehicleFlowRate>120</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
<measuredValue index="3"><measuredValue><basicData xsi:type="TrafficSpeed"><averageVehicleSpeed><speed>80</speed></averageVehicleSpeed></basicData></measuredValue></measuredValue>
<measuredValue index="4"><measuredValue><basicData xsi:type="TrafficSpeed"><averageVehicleSpeed><speed>90</speed></averageVehicleSpeed></basicData></measuredValue></measuredValue>
<measuredValue index="5"><measuredValue><basicData xsi:type="TrafficFlow"><vehicleFlow><vehicleFlowRate>240</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
<measuredValue index="6"><measuredValue><basicData xsi:type="TrafficSpeed"><averageVehicleSpeed><speed>120</speed></averageVehicleSpeed></basicData></measuredValue></measuredValue>
</siteMeasurements>
<siteMeasurements><measurementSiteReference id="PZH01_MST_0065_00" version="11"/><measurementTimeDefault>2025-08-15T21:47:00Z</measurementTimeDefault>
<measuredValue index="1"><measuredValue><basicData xsi:type="TrafficFlow"><vehicleFlow><vehicleFlowRate>60</vehicleFlowRate></vehicleFlow></basicData></measuredValue></measuredValue>
<measuredValue index="2"><measuredValue><basicData xsi:type="TrafficSpeed"><averageVehicleSpeed numberOfInputValuesUsed="0"><speed>-1</speed></averageVehicleSpeed></basicData></measuredValue></measuredValue>
</siteMeasurements></payloadPublication></d2LogicalModel>`

func writePublication(t *testing.T) (directory string) {
	t.Helper()
	directory = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, publicationFile), pack([]byte(smallPublication)), 0o600))
	return directory
}

// TestAuthority checks the codes that follow from the site table, that positions are in the
// Netherlands, and that the publication moves with the clock.
func TestAuthority(t *testing.T) {
	a, err := openAuthority(filepath.Join(writePublication(t), publicationFile))
	require.NoError(t, err)
	defer a.server.Close()
	get := func(name, etag string, status int) (text []byte, newETag string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+name, nil)
		require.NoError(t, err)
		r.Header.Set("If-None-Match", etag)
		response, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		defer response.Body.Close()
		require.Equal(t, status, response.StatusCode)
		if status == http.StatusOK {
			z, err := gzip.NewReader(response.Body)
			require.NoError(t, err)
			text, err = io.ReadAll(z)
			require.NoError(t, err)
		}
		return text, response.Header.Get("ETag")
	}
	format, _ := feeds.Lookup("ndw")
	table := feeds.NewTable()
	list, _ := get(siteTableFile, "", http.StatusOK)
	_, err = format.Parse(bytes.NewReader(list), format.Defaults, feeds.Sink{Site: func(s *feeds.Site) error {
		table.Add(s)
		require.InDelta(t, 5.2, s.Lon, 2, s.ID)
		require.InDelta(t, 52, s.Lat, 1.5, s.ID)
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, 2, table.Len())

	get(publicationFile, "", http.StatusServiceUnavailable)
	now := time.Date(2026, 11, 28, 17, 30, 5, 0, time.UTC)
	a.publish(now)
	text, etag := get(publicationFile, "", http.StatusOK)
	get(publicationFile, etag, http.StatusNotModified)
	values := map[string]float64{}
	options := format.Defaults
	options.Table = table
	_, err = format.Parse(bytes.NewReader(text), options, feeds.Sink{Rows: func(rows []feeds.Row) error {
		for _, r := range append(table.Totals(rows), rows...) {
			if r.Outcome == feeds.Measured {
				values[r.Site[:5]+" "+r.Code] = r.Value
				require.Less(t, now.Sub(r.From), 4*time.Minute)
				require.Equal(t, time.Minute, r.To.Sub(r.From))
			}
		}
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{
		"RWS01 flow.lane1.lt5.6m": 60, "RWS01 speed.lane1.lt5.6m": 80, "RWS01 flow.lane1": 120, "RWS01 speed.lane1": 90, "RWS01 flow.lane2": 240,
		"RWS01 speed.lane2": 120, "RWS01 flow": 360, "RWS01 speed": 110, "PZH01 flow.lane1": 60, "PZH01 flow": 60,
	}, values)
	a.publish(now.Add(time.Minute))
	_, next := get(publicationFile, etag, http.StatusOK)
	require.NotEqual(t, etag, next)
}

// TestFeed starts quickstart with a feed twice in the same directory.
func TestFeed(t *testing.T) {
	binary, dir, data := build(t), t.TempDir(), writePublication(t)
	for range 2 {
		s := startQuickstart(t, binary, dir, "--feed", "ndw", "--data", data, "--exit")
		code, text := s.end(t)
		require.Zero(t, code, text)
		require.Regexp(t, `published +8  values of 2 sites`, text)
		require.Regexp(t, `accepted +(10|0) `, text)
		require.Contains(t, text, "✓ every accepted measurement is in both stores, exactly once")
		require.Contains(t, text, "✓ the map shows the sites at 2 places")
		require.Contains(t, text, "the site table is made")
	}
	live := startQuickstart(t, binary, dir, "--feed", "ndw", "--data", data)
	require.Regexp(t, regexp.MustCompile(`map +http://127\.0\.0\.1:\d+/#map`), live.report(t))
	live.interrupt(t)

	missing := startQuickstart(t, binary, t.TempDir(), "--feed", "ndw", "--data", t.TempDir(), "--exit")
	code, text := missing.end(t)
	require.Equal(t, 1, code)
	require.Contains(t, text, "cannot find a recorded publication: ")
	require.Contains(t, text, "make run FEED=ndw-live")
	other := startQuickstart(t, binary, t.TempDir(), "--feed", "nd", "--exit")
	_, text = other.end(t)
	require.Contains(t, text, `feed "nd" must be ndw`)
}
