package feeds

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	otherSamples["miv"] = []string{"miv-verkeersdata.xml", "miv-configuratie.xml"}
	otherSamples["hongkong"] = []string{"hongkong.xml"}
	otherSamples["madrid"] = []string{"madrid-2018.xml"}
	otherSamples["wzdx"] = []string{"wzdx-sensors.geojson", "wzdx-arrow-board.geojson"}
}

func FuzzMIV(f *testing.F)      { fuzz(f, "miv") }
func FuzzHongKong(f *testing.F) { fuzz(f, "hongkong") }
func FuzzMadrid(f *testing.F)   { fuzz(f, "madrid") }
func FuzzWZDx(f *testing.F)     { fuzz(f, "wzdx") }

func TestFormatsAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Formats() {
		require.False(t, names[f.Name], f.Name)
		names[f.Name] = true
		if f.zone != "" {
			location(t, f.zone)
		}
	}
}

func TestGuess(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		got, _ := Guess([]byte(sample(t, name)))
		require.Equal(t, want, got.Name, name)
	}
	f("ndw-table.xml", "ndw")
	f("ndw-record.xml", "datex2")
	f("fr-speeds.xml", "bison-fute")
	f("autobahn-measured.xml", "autobahn")
	f("measured-v3.7.xml", "fintraffic")
	f("miv-verkeersdata.xml", "miv")
	f("miv-configuratie.xml", "miv")
	f("hongkong.xml", "hongkong")
	f("madrid-2018.xml", "madrid")
	f("wzdx-sensors.geojson", "wzdx")
	f("SOURCES.md", "")
}

func TestFlanders(t *testing.T) {
	r := read(t, "miv", sample(t, "miv-verkeersdata.xml"), nil)
	const at = " 2026-07-10T15:21:00Z 1m0s" // +01:00 in July, as written
	require.Equal(t, []string{
		"4970 flow.class1 1800" + at, "4970 speed.class1.harmonic 95" + at, "4970 flow.class2 7200" + at, "4970 speed.class2.harmonic 88" + at,
		"29 flow.class1 0 fault: no_time", "29 speed.class1.harmonic 252 no vehicle: no_flow",
	}, lines(r.rows))
	sites := read(t, "miv", sample(t, "miv-configuratie.xml"), nil).sites
	require.Equal(t, []any{"4970", 4.4842054, 50.9828171}, []any{sites[0].ID, sites[0].Lon, sites[0].Lat})
}

// meetpunt is a detector of Flanders with the values of one class.
func meetpunt(members, values string) string {
	return `<miv><tijd_publicatie>2023-08-01T11:11:12+02:00</tijd_publicatie><meetpunt beschrijvende_id="H222L10" unieke_id="29"><tijd_waarneming>` +
		`2023-08-01T10:10:00+01:00</tijd_waarneming>` + members + `<meetdata klasse_id="2">` + values + `</meetdata><rekendata><bezettingsgraad>7,5</bezettingsgraad>` +
		`<beschikbaarheidsgraad>100</beschikbaarheidsgraad></rekendata></meetpunt></miv>`
}

func TestSentinelsArePerMember(t *testing.T) {
	const at = " 2023-08-01T09:10:00Z 1m0s"
	f := func(members, values string, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = "29 " + want[i]
		}
		require.Equal(t, want, lines(read(t, "miv", meetpunt(members, values), nil).rows))
	}
	// The arithmetic mean is 0 and the harmonic mean 252 if there is no vehicle.
	f("", `<verkeersintensiteit>0</verkeersintensiteit><voertuigsnelheid_rekenkundig>0</voertuigsnelheid_rekenkundig><voertuigsnelheid_harmonisch>252</voertuigsnelheid_harmonisch>`,
		"flow.class2 0"+at, "speed.class2 0"+at+" no vehicle: no_flow", "speed.class2.harmonic 252"+at+" no vehicle: no_flow", "occupancy 7.5"+at)
	// 252 vehicles are a flow; 252 km/h with vehicles are a fault.
	f("", `<verkeersintensiteit>252</verkeersintensiteit><voertuigsnelheid_harmonisch>252</voertuigsnelheid_harmonisch>`,
		"flow.class2 15120"+at, "speed.class2.harmonic 252"+at+" fault: sentinel", "occupancy 7.5"+at)
}

func TestDefectCountsAndGeldigDoesNot(t *testing.T) {
	f := func(members string, want Outcome) {
		t.Helper()
		for _, row := range read(t, "miv", meetpunt(members, `<verkeersintensiteit>5</verkeersintensiteit>`), nil).rows {
			require.Equal(t, want, row.Outcome)
		}
	}
	f("<defect>0</defect><geldig>0</geldig>", Measured)
	f("<defect>1</defect><geldig>1</geldig>", Fault)
}

// TestHongKong has the numbers of lanes that a script counted.
func TestHongKong(t *testing.T) {
	document := large(t, "hongkong/rawSpeedVol-all.xml.gz")
	if document == nil {
		return
	}
	r := read(t, "hongkong", string(document), nil)
	const lanes, invalid, withoutVehicle = 4068, 232, 506
	require.Equal(t, 3*lanes, r.Values)
	require.Equal(t, 3*invalid, r.Of(Fault))
	require.Equal(t, withoutVehicle, r.Of(NoVehicle))
	require.Equal(t, 2*753, r.Sites)
	require.Zero(t, r.Of(Skipped))
}

func TestInvalidLanesAndCarriedSpeeds(t *testing.T) {
	r := read(t, "hongkong", sample(t, "hongkong.xml"), nil)
	require.Equal(t, []string{
		"AID01101 speed.fast 66 2024-04-06T13:27:00Z 30s", "AID01101 occupancy.fast 1 2024-04-06T13:27:00Z 30s", "AID01101 flow.fast 360 2024-04-06T13:27:00Z 30s",
	}, lines(r.rows[:3]))
	reasons := map[Reason]int{}
	for i, row := range r.rows {
		if reasons[row.Reason]++; row.Reason == NoFlow {
			require.Positive(t, row.Value, "the speed of the vehicles before")
			require.Zero(t, r.rows[i+2].Value)
		}
	}
	require.Positive(t, reasons[Equipment])
	require.Positive(t, reasons[NoFlow])
	require.Positive(t, reasons[""])
}

// hongKongPeriods is a document with a detector in each of the periods.
func hongKongPeriods(date string, periods ...string) string {
	text := "<raw_speed_volume_list><date>" + date + "</date><periods>"
	for i := 0; i < len(periods); i += 2 {
		text += "<period><period_from>" + periods[i] + "</period_from><period_to>" + periods[i+1] + "</period_to><detectors><detector><detector_id>D</detector_id><lanes>" +
			"<lane><lane_id>Middle Lane 2</lane_id><volume>1</volume><valid>Y</valid></lane></lanes></detector></detectors></period>"
	}
	return text + "</periods></raw_speed_volume_list>"
}

func TestAllPeriodsAreReadWithDateAndMidnight(t *testing.T) {
	f := func(text, modified string, want ...string) {
		t.Helper()
		r := read(t, "hongkong", text, func(o *Options) { o.Modified, _ = time.Parse(time.RFC3339, modified) })
		var got []string
		for _, row := range r.rows {
			if row.Measure == Flow {
				require.Equal(t, "flow.middle2", row.Code)
				got = append(got, strings.TrimSuffix(row.From.Format(time.RFC3339)+"/"+row.To.Sub(row.From).String()+" "+string(row.Reason), " "))
			}
		}
		require.Equal(t, want, got)
	}
	evening := []string{"23:59:00", "23:59:30", "23:59:30", "00:00:00", "00:00:00", "00:00:30"}
	want := []string{"2024-04-06T15:59:00Z/30s", "2024-04-06T15:59:30Z/30s", "2024-04-06T16:00:00Z/30s"}
	f(hongKongPeriods("2024-04-06", "08:00:00", "08:00:30", "08:00:30", "08:01:00"), "", "2024-04-06T00:00:00Z/30s", "2024-04-06T00:00:30Z/30s")
	f(hongKongPeriods("2024-04-06", evening...), "", want...)
	f(hongKongPeriods("2024-04-06", evening...), "2024-04-06T16:00:40Z", want...)
	f(hongKongPeriods("2024-04-07", evening...), "2024-04-06T16:00:40Z", want...) // the date of the time of publication
	f(hongKongPeriods("2024-04-06", evening...), "2024-04-07T16:00:40Z", "2024-04-07T15:59:00Z/30s", "2024-04-07T15:59:30Z/30s", "2024-04-07T16:00:00Z/30s")
	f(hongKongPeriods("2024-04-06", evening...), "2024-04-08T16:00:40Z", want...) // an old document stays old
	f(hongKongPeriods("", "08:00:00", "08:00:30"), "2024-04-06T16:00:40Z", "0001-01-01T00:00:00Z/0s no_time")
}

// TestMadrid has the numbers of values that a script counted.
func TestMadrid(t *testing.T) {
	document := large(t, "madrid/pm-2018.xml.gz")
	if document == nil {
		return
	}
	r := read(t, "madrid", string(document), options)
	require.Equal(t, 4275+4275+425, r.Values)
	require.Equal(t, 347+331+129, r.Of(Fault))
	require.Equal(t, 1, r.Of(NoVehicle))
	require.Equal(t, [3]int{3928, 3944, 295}, [3]int{r.Counts[Flow][Measured], r.Counts[Occupancy][Measured], r.Counts[Speed][Measured]})
}

func TestWordsSentinelsAndFlagsOfMadrid(t *testing.T) {
	r := read(t, "madrid", sample(t, "madrid-2018.xml"), options)
	reasons := map[Reason]int{}
	for _, row := range r.rows {
		reasons[row.Reason]++
		if row.Outcome == Measured {
			require.Equal(t, now.Add(-5*time.Minute), row.From, "the document has no time of its own")
		}
	}
	require.Equal(t, map[Reason]int{"": 6, Equipment: 5, Sentinel: 1}, reasons)
}

func TestTimeOfMadrid(t *testing.T) {
	text := func(at string) string {
		return `<?xml version="1.0" encoding="UTF-8"?><pms><fecha_hora>` + at + `</fecha_hora><pm><idelem>6711</idelem><codigo>1</codigo><intensidad>360</intensidad>` +
			`<ocupacion>2,5</ocupacion><error>N</error><st_x>439275,069</st_x><st_y>4471768,95</st_y></pm></pms>`
	}
	r := read(t, "madrid", text("20/07/2026 11:35:00"), nil)
	require.Equal(t, []string{"6711 flow 360 2026-07-20T09:30:00Z 5m0s", "6711 occupancy 2.5 2026-07-20T09:30:00Z 5m0s"}, lines(r.rows))
	s := r.sites[0]
	require.Equal(t, [2]float64{439275.069, 4471768.95}, [2]float64{s.X, s.Y})
	require.True(t, math.IsNaN(s.Lon), "metres are not degrees")
	r = read(t, "madrid", text("July"), options)
	require.Equal(t, NoTime, r.rows[0].Reason)

	_, err := parse(t, "madrid", strings.NewReader(sample(t, "madrid-2018.xml")), nil)
	require.ErrorContains(t, err, "it has no time, and its server did not say when it was published")
}

func TestLanesWithoutARoadEvent(t *testing.T) {
	r := read(t, "wzdx", sample(t, "wzdx-sensors.geojson"), nil)
	const at = " 2026-11-01T07:58:00Z 1m0s"
	require.Equal(t, []string{
		"s1 speed 93.5" + at, "s1 flow 1200" + at, "s1 occupancy 7.5" + at, "s1 speed.lane1 100" + at, "s1 flow.lane1 600" + at,
		"s1 speed.lane2 0" + at + " no vehicle: no_flow", "s1 flow.lane2 0" + at, "s2 speed 93" + at + " fault: equipment", "s2 flow 1200" + at + " fault: equipment",
	}, lines(r.rows))
	require.Equal(t, []any{"4.2", "2026-11-01T08:00:00Z", 3, 3}, []any{r.Version, r.Published.Format(time.RFC3339), r.Listed, r.Positions})
	require.Equal(t, []any{"Sensor s1", "eastbound", 2, -93.77, 41.61}, []any{r.sites[0].Name, r.sites[0].Side, r.sites[0].Lanes, r.sites[0].Lon, r.sites[0].Lat})
	require.Zero(t, read(t, "wzdx", sample(t, "wzdx-arrow-board.geojson"), nil).Listed, "an arrow board is not a sensor")
}

func TestWrongJSON(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := parse(t, "wzdx", strings.NewReader(text), nil)
		require.ErrorContains(t, err, "cannot read the document as wzdx: "+want)
	}
	f("", "invalid JSON: unexpected end")
	f("<html>", "invalid JSON: invalid character")
	f("[]", `it is not a JSON object with "features"`)
	f(`{"error":"x"}`, `it is a JSON object without "features"`)
	f(`{"features":{}}`, `"features" is not an array`)
	f(`{"features":[]}{}`, "invalid JSON: data follows")
	f(`{"features":[`+strings.Repeat("[", 1<<20), "invalid JSON: invalid character '[' exceeded max depth")
	f(`{"features":["`+strings.Repeat("a", 3<<20), "a JSON value is longer than 1048576 bytes")
	device := `{"id":"d","properties":{"core_details":{"device_type":"traffic-sensor"},"lane_data":[` + strings.Repeat(`{"lane_order":1,"volume_vph":1},`, MaxValues+1) + `{}]}}`
	f(`{"features":[`+device+`]}`, "a site has more than 1000 values")
}

func TestOneBrokenDeviceDoesNotAffectTheOthers(t *testing.T) {
	text := strings.Replace(sample(t, "wzdx-sensors.geojson"), `"volume_vph": 600`, `"volume_vph": "Error"`, 1)
	text = strings.Replace(text, `"id": "s2"`, `"id": 2`, 1)
	r := read(t, "wzdx", text, nil)
	reasons := map[Reason]int{}
	for _, row := range r.rows {
		reasons[row.Reason]++
	}
	require.Equal(t, map[Reason]int{"": 5, NotANumber: 1, NoFlow: 1, Equipment: 2}, reasons)
}

// TestErrorOfTheSinkEndsTheDocument checks that nothing is passed to the sink after its error.
func TestErrorOfTheSinkEndsTheDocument(t *testing.T) {
	errSink := errors.New("no space left")
	f := func(format, name string) {
		t.Helper()
		calls := 0
		call := func() error { calls++; return errSink }
		parser, _ := Lookup(format)
		_, err := parser.Parse(strings.NewReader(sample(t, name)), parser.Defaults, Sink{
			Rows: func([]Row) error { return call() }, Site: func(*Site) error { return call() },
		})
		require.ErrorIs(t, err, errSink, name)
		require.Equal(t, 1, calls, name)
	}
	f("bison-fute", "fr-speeds.xml")
	f("datex2", "site-table-v3.7.xml")
	f("miv", "miv-verkeersdata.xml")
	f("miv", "miv-configuratie.xml")
	f("hongkong", "hongkong.xml")
	f("wzdx", "wzdx-sensors.geojson")
}
