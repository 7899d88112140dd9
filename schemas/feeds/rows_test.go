package feeds

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mapped reads rows and returns their lines.
func mapped(t *testing.T, m Mapping, text string, change func(*Options)) result {
	t.Helper()
	return read(t, "rows", text, func(o *Options) {
		o.Mapping, o.Period, o.Zone = &m, 5*time.Minute, time.UTC
		if change != nil {
			change(o)
		}
	})
}

// pems has the columns of the five-minute files of California: the first lanes are wide, and absent
// lanes are empty.
var pems = Mapping{
	Form: "csv", Columns: []string{"time", "station", "samples", "observed", "flow", "occ", "speed", "flow1", "speed1", "flow2", "speed2"},
	Detector: "station", At: "time", Layout: "01/02/2006 15:04:05", Faults: []string{"observed=0"},
	Values: []Column{
		{Name: "flow", Measure: "flow", Unit: "vehicles"},
		{Name: "occ", Measure: "occupancy", Unit: "ratio"},
		{Name: "speed", Measure: "speed", Unit: "mph"},
		{Name: "flow1", Measure: "flow", Lane: "lane1", Unit: "vehicles"},
		{Name: "speed1", Measure: "speed", Lane: "lane1", Unit: "mph"},
		{Name: "flow2", Measure: "flow", Lane: "lane2", Unit: "vehicles"},
		{Name: "speed2", Measure: "speed", Lane: "lane2", Unit: "mph"},
	},
}

func TestEmptyIsNotZeroInWideRows(t *testing.T) {
	r := mapped(t, pems, "01/31/2026 08:00:00,715898,20,100,30,.1,50,30,50,,\n01/31/2026 08:00:00,715899,0,0,30,.1,50,30,50,,\n", nil)
	const at = " 2026-01-31T08:00:00Z 5m0s"
	require.Equal(t, []string{
		"715898 flow 360" + at, "715898 occupancy 10" + at, "715898 speed 80.4672" + at, "715898 flow.lane1 360" + at, "715898 speed.lane1 80.4672" + at,
	}, lines(r.rows[:5]))
	require.Equal(t, [2]int{5, 5}, [2]int{r.Of(Measured), r.Of(Fault)}, "an imputed row is not measured")
}

func TestValueRepeatedOnEveryClassIsSentOnce(t *testing.T) {
	taiwan := Mapping{
		Form: "json", Path: "VDLives.Lanes.Vehicles", Detector: "../../VDID", At: "../../DataCollectTime", Faults: []string{"../../Status!=0"},
		Values: []Column{
			{Name: "../Speed", Measure: "speed", Lane: "lane{../LaneID}"},
			{Name: "Volume", Measure: "flow", Lane: "lane{../LaneID}", Class: "{VehicleType}", Unit: "vehicles"},
		},
	}
	text := `{"UpdateTime":"x","VDLives":[{"VDID":"V1","DataCollectTime":"2026-01-31T08:00:00+08:00","Status":0,"Lanes":[{"LaneID":1,"Speed":52,` +
		`"Vehicles":[{"VehicleType":"S","Volume":3},{"VehicleType":"L","Volume":1}]}]},` +
		`{"VDID":"V2","DataCollectTime":"2026-01-31T08:00:00+08:00","Status":3,"Lanes":[{"LaneID":1,"Speed":-99,"Vehicles":[{"VehicleType":"S","Volume":-99}]}]}]}`
	r := mapped(t, taiwan, text, func(o *Options) { o.Period = time.Minute })
	const at = " 2026-01-31T00:00:00Z 1m0s"
	require.Equal(t, []string{
		"V1 speed.lane1 52" + at, "V1 flow.lane1.S 180" + at, "V1 speed.lane1 52" + at + " skipped: repeated", "V1 flow.lane1.L 60" + at,
		"V2 speed.lane1 -99" + at + " fault: equipment", "V2 flow.lane1.S -5940" + at + " fault: equipment",
	}, lines(r.rows))
}

func TestLongRowsHaveTheirKindInAColumn(t *testing.T) {
	digitraffic := Mapping{
		Form: "json", Path: "stations.sensorValues", Detector: "../id", From: "timeWindowStart", To: "timeWindowEnd", Kind: "name", Value: "value",
		Values: []Column{
			{Name: "OHITUKSET_60MIN_KIINTEA_SUUNTA1", Measure: "flow", Lane: "direction1"},
			{Name: "KESKINOPEUS_60MIN_KIINTEA_SUUNTA1", Measure: "speed", Lane: "direction1"},
		},
	}
	text := `{"dataUpdatedTime":"2026-01-31T08:05:00Z","stations":[{"id":20001,"tmsNumber":1,"sensorValues":[` +
		`{"id":5054,"name":"OHITUKSET_60MIN_KIINTEA_SUUNTA1","value":118,"unit":"kpl/h","timeWindowStart":"2026-01-31T07:00:00Z","timeWindowEnd":"2026-01-31T08:00:00Z"},` +
		`{"id":5056,"name":"KESKINOPEUS_60MIN_KIINTEA_SUUNTA1","value":83,"timeWindowStart":"2026-01-31T07:00:00Z","timeWindowEnd":"2026-01-31T08:00:00Z"},` +
		`{"id":1,"name":"TILA","value":1}]}]}`
	r := mapped(t, digitraffic, text, nil)
	require.Equal(t, []string{
		"20001 flow.direction1 118 2026-01-31T07:00:00Z 1h0m0s", "20001 speed.direction1 83 2026-01-31T07:00:00Z 1h0m0s", "20001 unknown 0 skipped: kind",
	}, lines(r.rows))
}

// TestAWrongColumnIsAnError: a mapping with a wrong name must not look like a feed without data.
func TestAWrongColumnIsAnError(t *testing.T) {
	f := func(change func(*Mapping), want string) {
		t.Helper()
		m := pems
		change(&m)
		_, err := parse(t, "rows", strings.NewReader("01/31/2026 08:00:00,715898,20,100,30,.1,50,30,50,,\n"), func(o *Options) { o.Mapping, o.Zone = &m, time.UTC })
		require.ErrorContains(t, err, "cannot read the document as rows: "+want)
	}
	f(func(m *Mapping) { m.Detector = "id" }, `no row has a column "id"`)
	f(func(m *Mapping) { m.At = "at" }, `no row has a column "at"`)
	f(func(m *Mapping) { m.Values = []Column{{Name: "x", Measure: "flow"}} }, "no row has a column with a value")
	f(func(m *Mapping) { m.Form = "xls" }, `form "xls" must be csv, json or xml`)
	f(func(m *Mapping) { m.Values = []Column{{Name: "x", Measure: "flow", Unit: "knots"}} }, `value "x": its measure "flow" or its unit "knots" is not known`)
	f(func(m *Mapping) { m.Where = []string{"x"} }, `condition "x" must be`)
	f(func(m *Mapping) { m.At = "" }, "at must name")
	f(func(m *Mapping) { m.Detector = "" }, "detector must name")
	f(func(m *Mapping) { m.Kind = "x" }, "values must name")
	f(func(m *Mapping) { m.Form = "xml" }, "path must name")
	f(func(m *Mapping) { m.Values = []Column{{Name: "x", Measure: "pace"}} }, `value "x": its measure "pace"`)
	f(func(m *Mapping) { m.Separator = ";;" }, `separator ";;" must be one character`)
	f(func(m *Mapping) { m.Decimal = ";" }, `decimal ";" must be`)
	_, err := parse(t, "rows", strings.NewReader(""), nil)
	require.ErrorContains(t, err, "rows need a mapping")
}

func TestDetectorErrorIsASentinel(t *testing.T) {
	scats := Mapping{Form: "csv", Detector: "site", At: "t", Values: []Column{{Name: "v1", Measure: "flow", Lane: "lane1", Unit: "vehicles", Sentinels: []float64{2046}}}}
	r := mapped(t, scats, "site,t,v1\n7,2026-01-31 08:00:00,2046\n7,2026-01-31 08:05:00,12\n", nil)
	require.Equal(t, []string{"7 flow.lane1 24552 2026-01-31T08:00:00Z 5m0s fault: sentinel", "7 flow.lane1 144 2026-01-31T08:05:00Z 5m0s"}, lines(r.rows))
}

func TestPositionsInQuotedCells(t *testing.T) {
	places := Mapping{Form: "csv", Detector: "AID_ID_Number", At: "t", Name: "Road_EN", Lon: "Longitude", Lat: "Latitude", Values: []Column{{Name: "v", Measure: "speed"}}}
	text := "\xEF\xBB\xBFAID_ID_Number,Road_EN,Latitude,Longitude,t,v\nAID1,\"Road, near House\",22.25,114.15,,\n AID2 ,Other,812147,833758,,\n"
	r := mapped(t, places, text, nil)
	require.Equal(t, []any{"AID1", "Road, near House", 114.15, 22.25}, []any{r.sites[0].ID, r.sites[0].Name, r.sites[0].Lon, r.sites[0].Lat})
	require.Equal(t, []any{"AID2", 833758.0, 812147.0}, []any{r.sites[1].ID, r.sites[1].X, r.sites[1].Y})

	m := places
	m.At, m.Values = "Direction", []Column{{Name: "Rotation", Measure: "speed"}}
	document := large(t, "hongkong/traffic_speed_volume_occ_info.csv.gz")
	if document == nil {
		return
	}
	r = mapped(t, m, string(document), nil)
	require.Equal(t, [2]int{786, 786}, [2]int{r.Listed, r.Positions})
}

func TestRowsOfXML(t *testing.T) {
	m := Mapping{
		Form: "xml", Path: "pm", Decimal: ",", Detector: "idelem", At: "../fecha_hora", Layout: "02/01/2006 15:04:05", Where: []string{"error=N"},
		Values: []Column{{Name: "intensidad", Measure: "flow"}, {Name: "ocupacion", Measure: "occupancy"}}, Lon: "st_x", Lat: "st_y",
	}
	text := `<pms v="1"><fecha_hora>20/07/2026 11:35:00</fecha_hora><pm idelem="1"><intensidad>360</intensidad><ocupacion>2,5</ocupacion><error>N</error></pm>` +
		`<pm idelem="2"><intensidad>360</intensidad><error>S</error></pm></pms>`
	r := mapped(t, m, text, func(o *Options) { o.Zone = location(t, "Europe/Madrid") })
	require.Equal(t, []string{"1 flow 360 2026-07-20T09:35:00Z 5m0s", "1 occupancy 2.5 2026-07-20T09:35:00Z 5m0s"}, lines(r.rows))
}

func TestTimesOfRows(t *testing.T) {
	f := func(layout, text, want string) {
		t.Helper()
		m := Mapping{Form: "json", Detector: "d", At: "t", Layout: layout, Values: []Column{{Name: "v", Measure: "speed", Inputs: "n"}}}
		r := mapped(t, m, `[{"d":1,"t":`+text+`,"v":50,"n":2}]`, nil)
		require.Equal(t, []string{"1 speed 50" + want}, lines(r.rows))
	}
	f("", `"2026-01-31T08:00:00"`, " 2026-01-31T08:00:00Z 5m0s")
	f("unix", `1769846400`, " 2026-01-31T08:00:00Z 5m0s")
	f("unixms", `1769846400000`, " 2026-01-31T08:00:00Z 5m0s")
	f("2006-01-02 15:04 -0700", `"2026-01-31 09:00 +0100"`, " 2026-01-31T08:00:00Z 5m0s")
	f("unix", `"soon"`, " fault: no_time")
	f("unix", `null`, " fault: no_time")
}

// TestSpeedWithoutVehiclesInRows has the number of vehicles beside the speed.
func TestSpeedWithoutVehiclesInRows(t *testing.T) {
	m := Mapping{Form: "csv", Detector: "d", At: "t", Values: []Column{{Name: "v", Measure: "speed", Inputs: "n"}, {Name: "n", Measure: "flow", Unit: "vehicles"}}}
	r := mapped(t, m, "d,t,v,n\n1,2026-01-31 08:00:00,0,0\n1,2026-01-31 08:05:00,0,3\n", nil)
	require.Equal(t, []Outcome{NoVehicle, Measured, Measured, Measured}, []Outcome{r.rows[0].Outcome, r.rows[1].Outcome, r.rows[2].Outcome, r.rows[3].Outcome})
}

func FuzzRows(f *testing.F) {
	for form, text := range map[string]string{
		"csv": "d,t,v\n1,2026-01-31T08:00:00Z,50\n", "json": `{"a":[{"d":1,"b":[{"t":"2026-01-31T08:00:00Z","v":50}]}]}`,
		"xml": "<a><r d='1'><t>2026-01-31T08:00:00Z</t><v>50</v></r></a>",
	} {
		f.Add(form, []byte(text))
	}
	f.Fuzz(func(t *testing.T, form string, text []byte) {
		m := Mapping{Form: form, Path: "r", Detector: "d", At: "t", Values: []Column{{Name: "v", Measure: "speed", Unit: "mph"}, {Name: "w", Measure: "flow", Unit: "vehicles"}}}
		if form == "json" {
			m.Path, m.Detector = "a.b", "../d"
		}
		checkAny(t, "rows", text, func(o *Options) { o.Mapping, o.Period = &m, time.Minute })
	})
}
