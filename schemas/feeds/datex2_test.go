package feeds

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line writes a row as a test expects it.
func line(r *Row) string {
	text := fmt.Sprintf("%s %s %v", r.Site, r.Code, r.Value)
	if !r.To.IsZero() {
		text += " " + r.From.Format(time.RFC3339) + " " + r.To.Sub(r.From).String()
	}
	if r.Outcome != Measured {
		text += fmt.Sprintf(" %s: %s", r.Outcome, r.Reason)
	}
	return text
}

func lines(rows []Row) (all []string) {
	for i := range rows {
		all = append(all, line(&rows[i]))
	}
	return all
}

// table reads the sites of a document into a table.
func table(t testing.TB, format, text string) *Table {
	t.Helper()
	sites := NewTable()
	for _, s := range read(t, format, text, nil).sites {
		sites.Add(&s)
	}
	return sites
}

// v2 wraps measured data of version 2.
func v2(body string) string {
	return `<d2LogicalModel xmlns="http://datex2.eu/schema/2/2_0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" modelBaseVersion="2">` +
		`<payloadPublication xsi:type="MeasuredDataPublication" lang="en">` + body + `</payloadPublication></d2LogicalModel>`
}

// site is the data of one site of version 2 at 08:00.
func site(values ...string) string {
	return `<siteMeasurements><measurementSiteReference id="S" version="1"/><measurementTimeDefault>2026-11-01T08:00:00Z</measurementTimeDefault>` +
		strings.Join(values, "") + `</siteMeasurements>`
}

func quantityOf(index int, kind, value string) string {
	return fmt.Sprintf(`<measuredValue index="%d"><measuredValue><basicData xsi:type="%s">%s</basicData></measuredValue></measuredValue>`, index, kind, value)
}

func speedOf(index int, attributes, value string) string {
	return quantityOf(index, "TrafficSpeed", `<averageVehicleSpeed `+attributes+`>`+value+`</averageVehicleSpeed>`)
}

func flowOf(index int, value string) string {
	return quantityOf(index, "TrafficFlow", `<vehicleFlow>`+value+`</vehicleFlow>`)
}

const (
	kmh60 = `<speed>60</speed>`
	veh0  = `<vehicleFlowRate>0</vehicleFlowRate>`
	veh60 = `<vehicleFlowRate>60</vehicleFlowRate>`
)

// at8 is the interval of these values in the format ndw.
const at8 = " 2026-11-01T08:00:00Z 1m0s"

// ndw reads values of one site of version 2 and compares their rows, without the site.
func ndw(t *testing.T, values []string, want ...string) {
	t.Helper()
	for i := range want {
		want[i] = "S " + want[i]
	}
	require.Equal(t, want, lines(read(t, "ndw", v2(site(values...)), nil).rows))
}

func TestFranceHasFlowAndSpeedWithTheSameIndex(t *testing.T) {
	r := read(t, "bison-fute", sample(t, "fr-speeds.xml"), nil)
	require.Equal(t, []string{
		"MUM76.h1 flow 1010 2026-07-25T06:24:00Z 6m0s", "MUM76.h1 speed 112 2026-07-25T06:24:00Z 6m0s",
		"A0001011200 flow 1420 2026-07-25T06:24:00Z 6m0s", "A0001011200 speed 85 2026-07-25T06:24:00Z 6m0s",
	}, lines(r.rows))
	require.Equal(t, "2", r.Version)
}

func TestMeasurementAfterThePublicationIsKept(t *testing.T) {
	r := read(t, "bison-fute", sample(t, "fr-speeds.xml"), nil)
	require.True(t, r.Published.Before(r.rows[0].To), "a period may end after the publication")
	require.Equal(t, Measured, r.rows[0].Outcome)
}

func TestBasicDataInAnExtensionIsRead(t *testing.T) {
	r := read(t, "autobahn", sample(t, "autobahn-measured.xml"), nil)
	require.Equal(t, []string{"eq.test_001.f.de speed.i5 85 2026-07-24T17:09:40Z 1m0s"}, lines(r.rows))
	several := quantityOf(5, "TrafficSpeed", `<averageVehicleSpeed><speed>1</speed></averageVehicleSpeed></basicData>`+
		`<basicData><measurementOrCalculationTime>2026-11-01T08:01:00Z</measurementOrCalculationTime><averageVehicleSpeed><speed>2</speed></averageVehicleSpeed>`)
	ndw(t, []string{several}, "speed.i5 1"+at8, "speed.i5 2 2026-11-01T08:01:00Z 1m0s")
}

func TestEveryIndexIsAValue(t *testing.T) {
	ndw(t, []string{speedOf(1, "", kmh60), speedOf(2, "", kmh60), flowOf(3, veh60)},
		"speed.i1 60"+at8, "speed.i2 60"+at8, "flow.i3 60"+at8)
}

func TestValuesWithTheSameIndexAreNotMerged(t *testing.T) {
	ndw(t, []string{speedOf(0, "", kmh60), speedOf(0, "", kmh60), flowOf(0, veh60)},
		"speed 60"+at8, "speed.n2 60"+at8, "flow 60"+at8)
}

func TestLanesAndClassesComeFromTheTable(t *testing.T) {
	sites := table(t, "ndw", sample(t, "ndw-record.xml"))
	values := []string{}
	for i := 1; i <= 4; i++ {
		values = append(values, flowOf(i, veh60))
	}
	for i := 5; i <= 9; i++ {
		values = append(values, speedOf(i, "", kmh60))
	}
	text := strings.Replace(v2(site(values...)), `id="S"`, `id="PZH01_MST_0629_00"`, 1)
	r := read(t, "ndw", text, func(o *Options) { o.Table, o.Period = sites, 0 })
	var codes []string
	for _, row := range r.rows {
		codes = append(codes, row.Code)
		if row.Index <= 8 {
			require.Equal(t, time.Minute, row.To.Sub(row.From), "the period is that of the characteristics")
		}
	}
	require.Equal(t, []string{
		"flow.lane1.lt5.6m", "flow.lane1.ge5.6_le12.2m", "flow.lane1.gt12.2m", "flow.lane1",
		"speed.lane1.lt5.6m", "speed.lane1.ge5.6_le12.2m", "speed.lane1.gt12.2m", "speed.lane1",
		"speed.i9", // not in the table
	}, codes)
}

// TestAnotherVersionOfTheTableIsUsed: the version of a publication is that of the current table or
// of the next one.
func TestAnotherVersionOfTheTableIsUsed(t *testing.T) {
	sites := NewTable()
	for version, lane := range []string{"lane1", "lane2"} {
		sites.Add(&Site{ID: "S", Version: fmt.Sprint(version + 7), Characteristics: []Characteristic{{Index: 1, Lane: lane}}})
	}
	r := read(t, "ndw", v2(site(speedOf(1, "", kmh60))), func(o *Options) { o.Table = sites })
	require.Equal(t, []string{"S speed.lane2 60" + at8}, lines(r.rows))
}

func TestSiteTableOfVersion2(t *testing.T) {
	r := read(t, "ndw", sample(t, "ndw-table.xml"), nil)
	require.Len(t, r.sites, 1)
	s := r.sites[0]
	require.Equal(t, []any{"PZH01_MST_0629_00", "2", "N457 hmp 4.75 Re", "northWestBound", 1, 4}, []any{s.ID, s.Version, s.Name, s.Side, s.Lanes, len(s.Characteristics)})
	require.True(t, math.IsNaN(s.Lon))
	require.Equal(t, Characteristic{2, "trafficFlow", "lane1", "ge5.6_le12.2m", time.Minute}, s.Characteristics[1])
	require.Equal(t, [2]int{1, 0}, [2]int{r.Listed, r.Positions})
}

func TestPositionAndOpenLR(t *testing.T) {
	s := read(t, "ndw", sample(t, "ndw-record.xml"), nil).sites[0]
	require.Equal(t, [2]float64{4.634289, 52.0263}, [2]float64{s.Lon, s.Lat}, "locationForDisplay comes before OpenLR")
	require.Equal(t, Line{Points: []Point{
		{Lon: 4.64093733, Lat: 52.0222778, Bearing: 317, FRC: 3, FOW: 2, LowestFRC: 3, Len: 961},
		{Lon: 4.63093138, Lat: 52.02832, Bearing: 135, FRC: 3, FOW: 2},
	}, PositiveOffset: 639}, s.Line)
}

func TestVersion3(t *testing.T) {
	sites := table(t, "fintraffic", sample(t, "site-table-v3.7.xml"))
	for _, name := range []string{"measured-v3.7.xml", "measured-v3-container.xml"} {
		r := read(t, "fintraffic", sample(t, name), func(o *Options) { o.Table = sites })
		require.Equal(t, []string{
			"S-1 speed.lane1 83.5 2026-11-20T08:00:00Z 1m0s",
			"S-1 flow.lane2.gt12.2m 0 2026-11-20T08:00:00Z 1m0s fault: data_error", // its time follows the values
			"S-1 unknown 0 2026-11-20T08:00:00Z 1m0s fault: equipment",
		}, lines(r.rows))
		require.Equal(t, 98.0, r.rows[0].Quality)
		require.Equal(t, "3", r.Version)
		require.Equal(t, "2026-11-20T08:01:20Z", r.Published.Format(time.RFC3339))
	}
	s := read(t, "datex2", sample(t, "site-table-v3.7.xml"), nil).sites[0]
	require.Equal(t, [2]float64{24.95, 60.18}, [2]float64{s.Lon, s.Lat}, "pointByCoordinates comes before coordinatesForDisplay")
	require.Equal(t, []any{"A1 km 12.3, northbound", "northBound", 2, 3}, []any{s.Name, s.Side, s.Lanes, len(s.Characteristics)})
}

// TestTheDocumentDecides: the same configuration reads measured data with its table and elaborated
// data with predefined locations, also in one document.
func TestTheDocumentDecides(t *testing.T) {
	elaborated := func(forecast string) string {
		return `<d2LogicalModel modelBaseVersion="2"><payloadPublication><periodDefault>300</periodDefault><timeDefault>2026-11-01T08:00:00Z</timeDefault>` +
			`<elaboratedData>` + forecast + `<basicData><pertinentLocation><predefinedLocationReference id="L1"/></pertinentLocation>` +
			`<vehicleFlow><vehicleFlowRate>0</vehicleFlowRate></vehicleFlow></basicData></elaboratedData>` +
			`<elaboratedData>` + forecast + `<basicData><pertinentLocation><predefinedLocationReference id="L1"/></pertinentLocation>` +
			`<averageVehicleSpeed><speed>50</speed></averageVehicleSpeed></basicData></elaboratedData>` +
			`<elaboratedData><basicData><pertinentLocation><predefinedLocationReference id="L2"/></pertinentLocation>` +
			`<averageVehicleSpeed><speed>50</speed></averageVehicleSpeed></basicData></elaboratedData>` +
			`<elaboratedData><basicData><averageVehicleSpeed><speed>50</speed></averageVehicleSpeed></basicData></elaboratedData>` +
			`</payloadPublication></d2LogicalModel>`
	}
	r := read(t, "autobahn", elaborated(""), func(o *Options) { o.Time = Begin })
	const at = " 2026-11-01T08:00:00Z 5m0s"
	require.Equal(t, []string{
		"L1 flow 0" + at, "L1 speed 50" + at + " no vehicle: no_flow", "L2 speed 50" + at, " speed 50" + at + " fault: no_site",
	}, lines(r.rows))
	r = read(t, "autobahn", elaborated("<forecast>true</forecast>"), nil)
	require.Equal(t, [2]int{2, 1}, [2]int{r.Of(Skipped), r.Of(Measured)})

	r = read(t, "autobahn", `<d2LogicalModel><payloadPublication><predefinedLocationContainer xsi:type="PredefinedLocation" xmlns:xsi="x" id="L1" version="3">`+
		`<predefinedLocationName><values><value>A 5</value></values></predefinedLocationName><location><pointByCoordinates><pointCoordinates>`+
		`<latitude>50.1</latitude><longitude>8.6</longitude></pointCoordinates></pointByCoordinates></location></predefinedLocationContainer>`+
		`<predefinedLocationContainer id="G"><predefinedLocation id="L2"><location/></predefinedLocation></predefinedLocationContainer>`+
		`</payloadPublication></d2LogicalModel>`, nil)
	require.Len(t, r.sites, 2)
	require.Equal(t, []any{"L1", "A 5", 8.6, 50.1, "L2"}, []any{r.sites[0].ID, r.sites[0].Name, r.sites[0].Lon, r.sites[0].Lat, r.sites[1].ID})

	r = read(t, "autobahn", `<p:payload xmlns:p="p" xmlns:l="l" xmlns:xsi="x" xsi:type="l:PredefinedLocationsPublication"><l:predefinedLocationReference `+
		`xsi:type="l:PredefinedLocation" id="L3"><l:location><l:coordinatesForDisplay><l:latitude>1</l:latitude><l:longitude>2</l:longitude>`+
		`</l:coordinatesForDisplay></l:location></l:predefinedLocationReference></p:payload>`, nil)
	require.Equal(t, "L3", r.sites[0].ID)
	r = read(t, "autobahn", `<payload><timeDefault>2026-11-01T08:00:00Z</timeDefault><physicalQuantity><pertinentLocation><predefinedLocationReference id="L3"/>`+
		`</pertinentLocation><basicData><averageVehicleSpeed><speed>50</speed></averageVehicleSpeed></basicData></physicalQuantity></payload>`, nil)
	require.Equal(t, []string{"L3 speed 50 2026-11-01T07:59:00Z 1m0s"}, lines(r.rows))

	sites := read(t, "autobahn", sample(t, "autobahn-sites.xml"), nil).sites
	require.Equal(t, [2]float64{8.6821, 50.1109}, [2]float64{sites[0].Lon, sites[0].Lat})
}

func TestVersion1HasTextInsteadOfAttributes(t *testing.T) {
	r := read(t, "datex2", `<d2LogicalModel xmlns="http://datex2.eu/schema/1/1_0"><payloadPublication><siteMeasurements>`+
		`<measurementSiteReference>TII-1</measurementSiteReference><measurementTimeDefault>2026-11-01T08:00:00Z</measurementTimeDefault>`+
		`<measuredValue index="0"><basicDataValue><averageVehicleSpeed>83.5</averageVehicleSpeed></basicDataValue></measuredValue>`+
		`</siteMeasurements></payloadPublication></d2LogicalModel>`, nil)
	require.Equal(t, []string{"TII-1 speed 83.5 2026-11-01T08:00:00Z 0s"}, lines(r.rows))
	s := read(t, "datex2", `<d2LogicalModel><payloadPublication><measurementSiteTable><measurementSiteRecord id="TII-1"><measurementSiteLocation>`+
		`<pointCoordinates><latitude>53</latitude><longitude>-6</longitude></pointCoordinates></measurementSiteLocation></measurementSiteRecord>`+
		`</measurementSiteTable></payloadPublication></d2LogicalModel>`, nil).sites[0]
	require.Equal(t, [2]float64{-6, 53}, [2]float64{s.Lon, s.Lat})
}

func TestTheTypeIsThatOfTheValueNotOfTheTable(t *testing.T) {
	sites := NewTable()
	sites.Add(&Site{ID: "S", Characteristics: []Characteristic{{Index: 1}, {Index: 2}}}) // without specificMeasurementValueType
	r := read(t, "ndw", v2(site(flowOf(1, veh60), speedOf(2, "", kmh60))), func(o *Options) { o.Table = sites })
	require.Equal(t, []string{"S flow 60" + at8, "S speed.i2 60" + at8}, lines(r.rows))
}

func TestTypesWithAnyPrefixAndEnvelope(t *testing.T) {
	body := strings.ReplaceAll(v2(site(speedOf(0, "", kmh60))), "TrafficSpeed", "dx223:TrafficSpeed")
	for _, text := range []string{
		body,
		`<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Header/><s:Body>` + body + `</s:Body></s:Envelope>`,
		`<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><c:container xmlns:c="c"><c:body>` + body + `</c:body></c:container></s:Body></s:Envelope>`,
		strings.ReplaceAll(body, `xsi:type="MeasuredDataPublication"`, ""),
		strings.ReplaceAll(body, "2/2_0", "2_0RC1/2_0"),
	} {
		require.Equal(t, []string{"S speed 60" + at8}, lines(read(t, "ndw", text, nil).rows))
	}
}

func TestNoVehicleHasTwoCodings(t *testing.T) {
	ndw(t, []string{
		speedOf(1, `numberOfInputValuesUsed="0"`, `<speed>-1</speed>`), speedOf(2, `numberOfInputValuesUsed="0"`, `<speed>0</speed>`), speedOf(3, "", `<speed>-1</speed>`),
	}, "speed.i1 -1"+at8+" no vehicle: no_inputs", "speed.i2 0"+at8+" no vehicle: no_inputs", "speed.i3 -1"+at8+" no vehicle: minus_one")
}

func TestStandstillIsMeasured(t *testing.T) {
	ndw(t, []string{flowOf(1, veh60), speedOf(2, `numberOfInputValuesUsed="5"`, `<speed>0</speed>`), speedOf(3, "", `<speed>0</speed>`)},
		"flow.i1 60"+at8, "speed.i2 0"+at8, "speed.i3 0"+at8)
	ndw(t, []string{flowOf(0, veh60), speedOf(0, "", `<speed>0</speed>`)}, "flow 60"+at8, "speed 0"+at8)
	ndw(t, []string{flowOf(0, veh0), speedOf(0, "", `<speed>0</speed>`)}, "flow 0"+at8, "speed 0"+at8+" no vehicle: no_flow")
	before := quantityOf(0, "TrafficFlow", `<measurementOrCalculationTime>2026-11-01T07:59:00Z</measurementOrCalculationTime><vehicleFlow>`+veh0+`</vehicleFlow>`)
	ndw(t, []string{before, speedOf(0, "", `<speed>0</speed>`)}, "flow 0 2026-11-01T07:59:00Z 1m0s", "speed 0"+at8)
}

func TestMinusOneIsAFaultElsewhere(t *testing.T) {
	r := read(t, "datex2", v2(site(speedOf(0, "", `<speed>-1</speed>`))), nil)
	require.Equal(t, Sentinel, r.rows[0].Reason)
}

func TestDataErrorIsAFaultWhateverTheValue(t *testing.T) {
	for _, value := range []string{"0", "-1", "255", "83"} {
		r := read(t, "ndw", v2(site(speedOf(0, `numberOfInputValuesUsed="0"`, `<dataError>true</dataError><reasonForDataError><values><value lang="nl">9</value></values>`+
			`</reasonForDataError><speed>`+value+`</speed>`))), nil)
		require.Equal(t, []string{"S speed " + value + at8 + " fault: data_error"}, lines(r.rows))
	}
	ndw(t, []string{speedOf(0, "", `<dataError>false</dataError>`+kmh60)}, "speed 60"+at8)
}

func TestEquipmentFaultAndEmptyValue(t *testing.T) {
	fault := `<measurementEquipmentFault><measurementEquipmentFaultType>noDataValuesAvailable</measurementEquipmentFaultType></measurementEquipmentFault>`
	ndw(t, []string{
		`<measuredValue index="1"><measuredValue><basicData><averageVehicleSpeed><speed>0</speed></averageVehicleSpeed></basicData>` + fault + `</measuredValue></measuredValue>`,
		`<measuredValue index="2"><measuredValue>` + fault + `</measuredValue></measuredValue>`,
		`<measuredValue index="3"/>`, speedOf(4, "", ""),
	}, "speed.i1 0"+at8+" fault: equipment", "unknown.i2 0"+at8+" fault: equipment", "unknown.i3 0"+at8+" fault: no_value", "speed.i4 0"+at8+" fault: no_value")
}

func TestAWordIsAFaultOfTheValueNotOfTheDocument(t *testing.T) {
	ndw(t, []string{speedOf(1, "", "<speed>Error</speed>"), speedOf(2, "", "<speed>NaN</speed>"), speedOf(3, "", "<speed>INF</speed>"), speedOf(4, "", kmh60)},
		"speed.i1 0"+at8+" fault: not_a_number", "speed.i2 0"+at8+" fault: not_a_number", "speed.i3 0"+at8+" fault: not_a_number", "speed.i4 60"+at8)
}

func TestMissingAttributesStayMissing(t *testing.T) {
	r := read(t, "ndw", v2(site(speedOf(0, "", kmh60), speedOf(1, `supplierCalculatedDataQuality="97.5"`, kmh60))), nil)
	require.True(t, math.IsNaN(r.rows[0].Quality))
	require.Equal(t, 97.5, r.rows[1].Quality)
}

func TestNoTimeIsInvented(t *testing.T) {
	f := func(time, want string) {
		t.Helper()
		r := read(t, "ndw", strings.Replace(v2(site(speedOf(0, "", kmh60))), "<measurementTimeDefault>2026-11-01T08:00:00Z</measurementTimeDefault>", time, 1), nil)
		require.Equal(t, []string{"S speed 60" + want}, lines(r.rows))
	}
	f("", " fault: no_time")
	f("<measurementTimeDefault/>", " fault: no_time")
	f("<measurementTimeDefault>yesterday</measurementTimeDefault>", " fault: no_time")
	f("<measurementTimeDefault>2026-11-01T08:00:00</measurementTimeDefault>", " fault: no_time") // of which zone?
	f("<measurementTimeDefault>2026-11-01T09:00:00+01:00</measurementTimeDefault>", at8)
}

func TestMeaningOfTheTime(t *testing.T) {
	f := func(change func(*Options), body, want string) {
		t.Helper()
		r := read(t, "ndw", v2(strings.Replace(site(speedOf(0, "", kmh60)), "<averageVehicleSpeed", body+"<averageVehicleSpeed", 1)), change)
		require.Equal(t, []string{"S speed 60 2026-11-01T" + want}, lines(r.rows))
	}
	f(func(o *Options) { o.Time = Begin }, "", "08:00:00Z 1m0s")
	f(func(o *Options) { o.Time = End }, "", "07:59:00Z 1m0s")
	f(func(o *Options) { o.Time = Middle }, "", "07:59:30Z 1m0s")
	f(nil, "<measurementOrCalculationPeriod>300</measurementOrCalculationPeriod>", "08:00:00Z 5m0s")
	f(nil, "<measurementOrCalculationTime>2026-11-01T07:30:00Z</measurementOrCalculationTime>", "07:30:00Z 1m0s")
	f(nil, "<measurementOrCalculationTime><timeMeaning>endTime</timeMeaning><timeValue>2026-11-01T07:30:00Z</timeValue></measurementOrCalculationTime>", "07:29:00Z 1m0s")
	f(nil, "<measurementOrCalculationTime><timeMeaning>endTime</timeMeaning><timeValue>2026-11-01T07:30:00Z</timeValue><period><startOfPeriod>2026-11-01T07:00:00Z"+
		"</startOfPeriod><endOfPeriod>2026-11-01T07:15:00Z</endOfPeriod></period></measurementOrCalculationTime>", "07:00:00Z 15m0s")
	f(nil, "<measurementOrCalculationTime><period><endOfPeriod>2026-11-01T07:15:00Z</endOfPeriod></period></measurementOrCalculationTime>", "07:14:00Z 1m0s")
}

func TestOverrides(t *testing.T) {
	sites := NewTable()
	sites.Add(&Site{ID: "S", Characteristics: []Characteristic{{Index: 1, Lane: "lane1", Class: "car"}}})
	f := func(outer, inner, want string) {
		t.Helper()
		text := strings.Replace(speedOf(1, "", kmh60), "<basicData", outer+"<basicData", 1)
		text = strings.Replace(text, "<averageVehicleSpeed", inner+"<averageVehicleSpeed", 1)
		r := read(t, "ndw", v2(site(text)), func(o *Options) { o.Table = sites })
		require.Equal(t, want, r.rows[0].Code)
	}
	const override, class = "locationCharacteristicsOverride", "forVehiclesWithCharacteristicsOf"
	f("", "", "speed.lane1.car")
	f("<"+override+"><measurementLanesOverride>busLane</measurementLanesOverride></"+override+">", "", "speed.busLane.car")
	f("<"+override+"><reversedFlow>true</reversedFlow></"+override+">", "", "speed.lane1.reversed.car")
	f("", "<"+class+"><vehicleType>lorry</vehicleType><vehicleType>bus</vehicleType></"+class+">", "speed.lane1.bus_lorry")
	f("", "<"+class+"><vehicleType>anyVehicle</vehicleType></"+class+">", "speed.lane1")
}

func TestKindsOfValues(t *testing.T) {
	f := func(basic string, want ...string) {
		t.Helper()
		ndw(t, []string{quantityOf(0, "x", basic)}, want...)
	}
	f(`<occupancy><percentage>12.5</percentage></occupancy>`, "occupancy 12.5"+at8)
	f(`<concentration><concentrationOfVehicles>7</concentrationOfVehicles></concentration>`, "density 7"+at8)
	f(`<averageTimeHeadway><duration>2.5</duration></averageTimeHeadway>`, "headway 2.5"+at8)
	f(`<averageDistanceHeadway><floatingPointMetreDistance>40</floatingPointMetreDistance></averageDistanceHeadway>`, "distance_headway 40"+at8)
	f(`<travelTime><duration>93</duration></travelTime><freeFlowTravelTime><duration>60</duration></freeFlowTravelTime>`, "travel_time 93"+at8, "travel_time.freeflow 60"+at8)
	f(`<vehicleFlow><vehicleFlowRate>60</vehicleFlowRate></vehicleFlow><percentageLongVehicles><percentage>9</percentage></percentageLongVehicles>`, "flow 60"+at8, "long_vehicles 9"+at8)
	f(`<averageVehicleSpeed><speed>60</speed></averageVehicleSpeed><speedPercentile><vehiclePercentage><percentage>85</percentage></vehiclePercentage>`+
		`<speedPercentile><speed>72</speed></speedPercentile></speedPercentile><maximumSpeed><speed>90</speed></maximumSpeed>`, "speed 60"+at8, "speed.p85 72"+at8, "speed.max 90"+at8)
	f(`<temperature><airTemperature><temperature>3</temperature></airTemperature></temperature>`, "unknown 0"+at8+" skipped: kind")
	f(`<trafficStatus><trafficStatusValue>congested</trafficStatusValue></trafficStatus>`, "unknown 0"+at8+" skipped: kind")
}

func TestMetresAreNotAPosition(t *testing.T) {
	f := func(lat, lon, want string) {
		t.Helper()
		s := read(t, "datex2", `<payload><measurementSite id="S"><pointByCoordinates><pointCoordinates><latitude>`+lat+`</latitude><longitude>`+lon+
			`</longitude></pointCoordinates></pointByCoordinates></measurementSite></payload>`, nil).sites[0]
		require.Equal(t, want, fmt.Sprintf("%v,%v", s.Lon, s.Lat))
	}
	const no = "NaN,NaN"
	f("50.5", "4.5", "4.5,50.5")
	f("168000", "152000", no) // Lambert
	f("0", "0", no)           // a station without a position
	f("", "4.5", no)
	f("50.5", "180.5", no)
	f("50,5", "4,5", no)
}

func TestWrongDocuments(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := parse(t, "ndw", strings.NewReader(text), nil)
		require.ErrorContains(t, err, "cannot read the document as ndw: "+want)
	}
	f(`<html><head><title>Index of /</title><br></head>`, "it is an HTML page; check the address and the credentials")
	f(`<HTML/>`, "it is an HTML page")
	f(`<error>service unavailable</error>`, "it has a root element <error>, but no element <payloadPublication>")
	f(`<s:Envelope xmlns:s="s"><s:Body><s:Fault><faultstring>403</faultstring></s:Fault></s:Body></s:Envelope>`, "it has a root element <Envelope>, but no")
	f(`{"error":1}`, "invalid XML")
	f(``, "invalid XML at byte 0: unexpected end of the document")
	f(v2(site(speedOf(0, "", kmh60)))[:500], "invalid XML at byte")
	f(v2(site(strings.Repeat(speedOf(0, "", kmh60), MaxValues+1))), "a site has more than 1000 values")

	empty := read(t, "ndw", v2(""), nil)
	require.Zero(t, empty.Values, "a publication without values is not an error page")
}
