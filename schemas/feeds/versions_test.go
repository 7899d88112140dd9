package feeds

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// content is what a publication and its table of sites say, whatever their version.
type content struct {
	sites []contentSite
	end   bool // times are the ends of intervals
}

type contentSite struct {
	id     string
	at     time.Time
	values []contentValue
}

type contentValue struct {
	kind    int // of contentKinds
	number  string
	lane    int // 0: all
	usage   string
	classes []string // vehicle types
	lengths []string // operator and metres
	period  int
	wrong   bool
	fault   bool
	inputs  int // -1: not published
	at      time.Time
}

var contentKinds = []struct{ characteristic, kind, element, leaf string }{
	{"trafficSpeed", "TrafficSpeed", "averageVehicleSpeed", "speed"},
	{"trafficFlow", "TrafficFlow", "vehicleFlow", "vehicleFlowRate"},
	{"trafficConcentration", "TrafficConcentration", "occupancy", "percentage"},
	{"trafficHeadway", "TrafficHeadway", "averageTimeHeadway", "duration"},
}

func randomContent(r *rand.Rand) (c content) {
	c.end = r.IntN(2) == 0
	start := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	for i := range r.IntN(5) {
		s := contentSite{id: fmt.Sprintf("S%d_%c.%d-&", i, 'a'+r.IntN(26), r.IntN(100)), at: start.Add(time.Duration(r.IntN(60)) * time.Minute)}
		for range 1 + r.IntN(12) {
			v := contentValue{
				kind: r.IntN(len(contentKinds)), number: fmt.Sprint(r.IntN(130)), lane: r.IntN(4), period: []int{0, 30, 60, 300}[r.IntN(4)],
				wrong: r.IntN(8) == 0, fault: r.IntN(12) == 0, inputs: r.IntN(4) - 1,
			}
			if r.IntN(3) == 0 {
				v.number += fmt.Sprintf(".%d", r.IntN(100))
			}
			if r.IntN(10) == 0 {
				v.number = "-1"
			}
			if v.lane == 0 && r.IntN(2) == 0 {
				v.usage = []string{"busLane", "hardShoulder", "allLanesCompleteCarriageway"}[r.IntN(3)]
			}
			switch r.IntN(3) {
			case 0:
				v.classes = [][]string{{"anyVehicle"}, {"car"}, {"lorry", "bus"}}[r.IntN(3)]
			case 1:
				v.lengths = [][]string{{"lessThan", "5.6"}, {"greaterThan", "12.20"}, {"greaterThanOrEqualTo", "5.6", "lessThanOrEqualTo", "12.2"}}[r.IntN(3)]
			}
			if r.IntN(4) == 0 {
				v.at = s.at.Add(-time.Minute)
			}
			s.values = append(s.values, v)
		}
		c.sites = append(c.sites, s)
	}
	return c
}

// version writes content as one version of DATEX II does.
type version struct {
	name      string
	three     bool
	container bool // an envelope around the payload
	extended  bool // with extensions
}

var versions = []version{{name: "2.0"}, {name: "2.3", container: true, extended: true}, {name: "3.1", three: true}, {name: "3.7", three: true, container: true, extended: true}}

// tag writes an element. Version 3 has a prefix for each module, version 2 none.
func (v version) tag(b *strings.Builder, module, name, attributes, body string) {
	if v.three {
		name = module + ":" + name
	}
	fmt.Fprintf(b, "<%s%s>%s</%s>\n", name, attributes, body, name)
}

func (v version) element(module, name, body string) string {
	var b strings.Builder
	v.tag(&b, module, name, "", body)
	return b.String()
}

func (v version) document(kind, body string) string {
	const xsi = ` xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"`
	if !v.three {
		text := `<d2LogicalModel xmlns="http://datex2.eu/schema/2/2_0"` + xsi + ` modelBaseVersion="2"><payloadPublication xsi:type="` + kind + `">` + body +
			`</payloadPublication></d2LogicalModel>`
		if v.container {
			text = `<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/"><SOAP:Body>` + text + `</SOAP:Body></SOAP:Envelope>`
		}
		return text
	}
	names := xsi
	for _, module := range []string{"com", "loc", "roa", "d2", "mc"} {
		names += ` xmlns:` + module + `="http://datex2.eu/schema/3/` + module + `"`
	}
	if v.container {
		return `<mc:messageContainer` + names + ` modelBaseVersion="3"><mc:payload xsi:type="roa:` + kind + `" modelBaseVersion="3">` + body + `</mc:payload></mc:messageContainer>`
	}
	return `<d2:payload` + names + ` xsi:type="roa:` + kind + `" modelBaseVersion="3">` + body + `</d2:payload>`
}

// time writes a time, which version 3 qualifies. It has an offset, to be applied.
func (v version) time(name string, at time.Time, end bool) string {
	text := at.In(time.FixedZone("", 3600)).Format(time.RFC3339)
	if !v.three {
		return v.element("roa", name, text)
	}
	meaning := "beginTime"
	if end {
		meaning = "endTime"
	}
	return v.element("roa", name, v.element("roa", "timeMeaning", meaning)+v.element("roa", "timeValue", text))
}

var escape = strings.NewReplacer("&", "&amp;")

func (v version) publication(c content) string {
	var b strings.Builder
	for _, s := range c.sites {
		var body strings.Builder
		v.tag(&body, "roa", "measurementSiteReference", ` id="`+escape.Replace(s.id)+`" version="1"`, "")
		if !v.three {
			body.WriteString(v.time("measurementTimeDefault", s.at, c.end))
		}
		for i, value := range s.values {
			k := contentKinds[value.kind]
			outer, fault := "measuredValue", "measurementEquipmentFault"
			if v.three {
				outer, fault = "physicalQuantity", "physicalQuantityFault"
			}
			number, basic := "", ""
			if value.wrong {
				number = v.element("com", "dataError", "true") + v.element("com", "reasonForDataError", `<values><value>7</value></values>`)
			}
			number += v.element("com", k.leaf, value.number)
			attributes := ""
			if value.inputs >= 0 {
				attributes = fmt.Sprintf(` numberOfInputValuesUsed="%d"`, value.inputs)
			}
			var element strings.Builder
			v.tag(&element, "roa", k.element, attributes, number)
			if !value.at.IsZero() {
				basic = v.time("measurementOrCalculationTime", value.at, c.end)
			}
			var data strings.Builder
			v.tag(&data, "roa", "basicData", ` xsi:type="`+k.kind+`"`, basic+element.String())
			inner := data.String()
			if v.extended && !v.three {
				inner = "<measuredValueExtension><measuredValues>" + inner + "</measuredValues></measuredValueExtension>"
			}
			if value.fault {
				inner += v.element("roa", fault, "")
			}
			var quantity strings.Builder
			v.tag(&quantity, "roa", outer, "", inner)
			v.tag(&body, "roa", outer, fmt.Sprintf(` index="%d"`, i+1), quantity.String())
		}
		if v.three {
			body.WriteString(v.time("measurementTimeDefault", s.at, c.end))
		}
		v.tag(&b, "roa", "siteMeasurements", "", body.String())
	}
	return v.document("MeasuredDataPublication", b.String())
}

func (v version) table(c content) string {
	var b strings.Builder
	for _, s := range c.sites {
		var body strings.Builder
		for i, value := range s.values {
			lane := ""
			switch {
			case v.three && value.lane > 0:
				lane = v.element("roa", "specificLane", v.element("loc", "laneNumber", fmt.Sprint(value.lane)))
			case v.three && value.usage != "":
				lane = v.element("roa", "specificLane", v.element("loc", "laneUsage", value.usage))
			case value.lane > 0:
				lane = v.element("roa", "specificLane", fmt.Sprintf("lane%d", value.lane))
			case value.usage != "":
				lane = v.element("roa", "specificLane", value.usage)
			}
			class := ""
			for _, kind := range value.classes {
				class += v.element("com", "vehicleType", kind)
			}
			for j := 0; j < len(value.lengths); j += 2 {
				class += v.element("com", "lengthCharacteristic", v.element("com", "comparisonOperator", value.lengths[j])+v.element("com", "vehicleLength", value.lengths[j+1]))
			}
			inner := ""
			if value.period > 0 {
				inner = v.element("roa", "period", fmt.Sprint(value.period))
			}
			kind := v.element("roa", "specificMeasurementValueType", contentKinds[value.kind].characteristic)
			if class = v.element("roa", "specificVehicleCharacteristics", class); v.three {
				inner += kind + class + lane
			} else {
				inner += lane + kind + class
			}
			v.tag(&body, "roa", "measurementSpecificCharacteristics", fmt.Sprintf(` index="%d"`, i+1), v.element("roa", "measurementSpecificCharacteristics", inner))
		}
		name := "measurementSiteRecord"
		if v.three {
			name = "measurementSite"
		}
		v.tag(&b, "roa", name, ` id="`+escape.Replace(s.id)+`" version="1"`, body.String())
	}
	var all strings.Builder
	v.tag(&all, "roa", "measurementSiteTable", ` id="T" version="1"`, b.String())
	return v.document("MeasurementSiteTablePublication", all.String())
}

// TestVersionsAreReadAlike writes the same content as four versions of DATEX II.
func TestVersionsAreReadAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	documents := 50
	if needs.Long() {
		documents = 500
	}
	for range documents {
		c := randomContent(r)
		var first []string
		for _, v := range versions {
			sites := table(t, "ndw", v.table(c))
			got := read(t, "ndw", v.publication(c), func(o *Options) {
				o.Table, o.Time = sites, Begin
				if c.end {
					o.Time = End
				}
			})
			rows := []string{fmt.Sprint(got.Counts)}
			codes := map[string]bool{}
			for i := range got.rows {
				rows = append(rows, line(&got.rows[i]))
				codes[rows[i+1]] = true
			}
			if first == nil {
				first = rows
			}
			require.Equal(t, first, rows, v.name)
			values := 0
			for _, s := range c.sites {
				values += len(s.values)
			}
			require.Equal(t, values, got.Values)
			require.Len(t, codes, values, "no two values have the same code and interval")
		}
	}
}

// documents returns a small document of each kind.
func documents(t testing.TB) map[string][]string {
	c := randomContent(rand.New(rand.NewPCG(3, 4)))
	all := map[string][]string{"ndw": {sample(t, "ndw-record.xml"), sample(t, "fr-speeds.xml"), sample(t, "measured-v3-container.xml"), sample(t, "site-table-v3.7.xml")}}
	for _, v := range versions {
		all["ndw"] = append(all["ndw"], v.publication(c), v.table(c))
	}
	for format, names := range otherSamples {
		for _, name := range names {
			all[format] = append(all[format], sample(t, name))
		}
	}
	return all
}

// otherSamples lists the samples of the formats besides DATEX II.
var otherSamples = map[string][]string{}

// now is when the servers of the tests publish.
var now = time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC)

func options(o *Options) { o.Modified = now }

// TestTruncatedDocuments checks that a document that ends too early is an error, and that its rows
// are those of the whole document.
func TestTruncatedDocuments(t *testing.T) {
	for format, texts := range documents(t) {
		for _, text := range texts {
			text = strings.TrimRight(text, " \n")
			whole, err := parse(t, format, strings.NewReader(text), options)
			require.NoError(t, err)
			step := 29
			if needs.Long() {
				step = 1
			}
			for n := 0; n < len(text); n += step {
				part, err := parse(t, format, strings.NewReader(text[:n]), options)
				require.Error(t, err, "%s %d", format, n)
				require.LessOrEqual(t, len(part.rows), len(whole.rows))
				require.Equal(t, lines(whole.rows[:len(part.rows)]), lines(part.rows), "%s %d", format, n)
			}
		}
	}
}

// TestMutatedDocuments checks that no change of a few bytes makes the parser fail in another way
// than with an error, or breaks what every row has.
func TestMutatedDocuments(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	mutants := 5_000
	if needs.Long() {
		mutants = 300_000
	}
	all := documents(t)
	count := 0
	for _, texts := range all {
		count += len(texts)
	}
	accepted := 0
	for format, texts := range all {
		for _, text := range texts {
			for range mutants / count {
				if _, err := parse(t, format, bytes.NewReader(mutate(r, text)), options); err == nil {
					accepted++
				}
			}
		}
	}
	t.Logf("%d of %d mutants were accepted", accepted, mutants)
	require.Positive(t, accepted)
}

// mutate changes up to three places of a text.
func mutate(r *rand.Rand, text string) []byte {
	b := []byte(text)
	for range 1 + r.IntN(3) {
		from := r.IntN(len(b))
		to := min(from+r.IntN(40), len(b))
		switch r.IntN(5) {
		case 0:
			b[from] = byte(r.IntN(256))
		case 1:
			b = append(b[:from:from], b[to:]...)
		case 2:
			b = append(b[:to:to], b[from:]...)
		case 3:
			b[from] = `<>&"'/=0-9`[r.IntN(10)]
		case 4:
			b = append(append(b[:from:from], `<x y="1"/>`...), b[from:]...)
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// fuzz checks a parser with any document: the sums are right, no row is without its reason, and the
// pieces in which the document arrives do not matter.
func fuzz(f *testing.F, format string) {
	for _, text := range documents(f)[format] {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkAny(t, format, text, options) })
}

func checkAny(t *testing.T, format string, text []byte, options func(*Options)) {
	r, err := parse(t, format, bytes.NewReader(text), options)
	again, errAgain := parse(t, format, iotest.HalfReader(bytes.NewReader(text)), options)
	require.Equal(t, fmt.Sprint(err), fmt.Sprint(errAgain))
	require.Equal(t, lines(r.rows), lines(again.rows))
	require.Equal(t, r.Values, len(r.rows))
	require.Equal(t, r.Values, r.Of(Measured)+r.Of(NoVehicle)+r.Of(Fault)+r.Of(Skipped))
	for _, row := range r.rows {
		require.Equal(t, row.Outcome == Measured, row.Reason == "")
		require.LessOrEqual(t, len(row.Code), maxCode)
		if row.Outcome == Measured {
			require.NotEmpty(t, row.Site)
			require.False(t, row.From.IsZero() || row.To.IsZero())
			require.Equal(t, clean(row.Code), row.Code)
			require.GreaterOrEqual(t, row.Value, 0.0)
			require.True(t, bytes.ContainsAny(text, "0123456789"), "a number that the document does not contain")
		}
	}
}

func FuzzDatex2(f *testing.F) { fuzz(f, "ndw") }
