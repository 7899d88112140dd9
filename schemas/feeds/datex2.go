package feeds

import (
	"io"
	"strconv"
	"strings"
	"time"

	"trafficd/schemas/feeds/xmlstream"
)

// datex2 reads DATEX II 2.0 to 2.3 and 3.1 to 3.7: measured and elaborated data, tables of sites
// and predefined locations, in any envelope. It matches local names, because the versions differ in
// namespaces and envelopes much more than in what they contain:
//
//	siteMeasurements                                    (or nothing, in elaborated data)
//	  measurementSiteReference, measurementTimeDefault  (the time follows the values in version 3)
//	  measuredValue index | physicalQuantity index | elaboratedData     = a quantity
//	    basicData                                       (at any depth, several in a quantity)
//	      averageVehicleSpeed | vehicleFlow | …         = a value
//
// The values of a site are held until its end.
type datex2 struct {
	*parser
	list siteList

	site    string   // id of the current site
	columns []column // of the site, in the table
	inSite  int      // depth of siteMeasurements; 0 outside
	at      stamp    // default of the site, or of elaborated data
	periods time.Duration
	later   bool // elaborated data is a forecast unless it says otherwise

	quantity quantity
	basic    int // depth of basicData; 0 outside
	first    int // of the values of this basicData
	stamp    stamp
	period   time.Duration
	class    vehicles
	timed    *stamp // what a timestamp belongs to

	depth      int // of the current value; 0 outside
	percentile int // depth of a percentile; 0 outside
	percent    string
}

// quantity is what applies to all values with an index.
type quantity struct {
	depth, first, index int
	reason              Reason
	lane                string
	lanes, reversed     bool
	site                string
	columns             []column
}

// values of basicData, by the name of the element.
var basicValues = map[string]struct {
	measure   Measure
	statistic string
}{
	"averageVehicleSpeed":        {Speed, ""},
	"minimumSpeed":               {Speed, "min"},
	"maximumSpeed":               {Speed, "max"},
	"normallyExpectedSpeed":      {Speed, "expected"},
	"freeFlowSpeed":              {Speed, "freeflow"},
	"vehicleFlow":                {Flow, ""},
	"normallyExpectedFlow":       {Flow, "expected"},
	"pcuFlow":                    {PCUFlow, ""},
	"axleFlow":                   {AxleFlow, ""},
	"percentageLongVehicles":     {LongVehicles, ""},
	"occupancy":                  {Occupancy, ""},
	"concentration":              {Density, ""},
	"density":                    {Density, ""},
	"averageTimeHeadway":         {Headway, ""},
	"averageDistanceHeadway":     {DistanceHeadway, ""},
	"travelTime":                 {TravelTime, ""},
	"freeFlowTravelTime":         {TravelTime, "freeflow"},
	"normallyExpectedTravelTime": {TravelTime, "expected"},
	"travelTimeDelay":            {TravelTime, "delay"},
}

func parseDatex2(p *parser, in io.Reader) error {
	d := &datex2{parser: p, list: siteList{parser: p}}
	names := []string{
		"payloadPublication", "payload", "siteMeasurements", "measurementSiteTable", "elaboratedData",
		"physicalQuantity", "measurementSiteRecord",
	}
	err := p.walk(in, names, d.start, d.end)
	if err == nil {
		d.finish(d.site, d.at)
	}
	return err
}

func (d *datex2) start(x *xmlstream.Reader) {
	switch {
	case d.depth != 0:
		return
	case d.basic != 0:
		d.startInBasic(x)
		return
	case d.list.depth != 0:
		d.list.start(x)
		return
	}
	switch string(x.Name()) {
	case "siteMeasurements":
		d.finish(d.site, d.at)
		d.inSite, d.at, d.site, d.columns = x.Depth(), stamp{}, "", nil
		return
	case "measurementSiteReference":
		if id, ok := x.Attr("id"); ok && d.inSite != 0 {
			d.site, d.columns = d.Table.of(id)
		}
	case "measurementTimeDefault", "timeDefault":
		d.at = stamp{stated: true}
		d.timed = &d.at
	case "measuredValue", "physicalQuantity", "elaboratedData":
		if d.quantity.depth == 0 {
			d.startQuantity(x)
		}
	case "basicData", "basicDataValue": // outside of a quantity, it is of no site
		if d.quantity.depth != 0 {
			d.basic, d.first, d.stamp, d.period, d.class = x.Depth(), len(d.values), stamp{}, 0, vehicles{}
		}
	case "measurementEquipmentFault", "physicalQuantityFault", "elaboratedDataFault":
		if d.quantity.depth != 0 && d.quantity.reason == "" {
			d.quantity.reason = Equipment
		}
	case "predefinedLocationReference":
		d.locate(x)
	}
	if d.quantity.depth == 0 && d.inSite == 0 {
		d.startOutside(x)
	}
}

// startOutside reads what is not in a site with measured data.
func (d *datex2) startOutside(x *xmlstream.Reader) {
	if version, ok := x.Attr("modelBaseVersion"); ok && d.Version == "" {
		d.Version = string(version)
	}
	d.list.start(x)
}

// startQuantity begins a quantity. It contains another element of the same name.
func (d *datex2) startQuantity(x *xmlstream.Reader) {
	d.quantity = quantity{depth: x.Depth(), first: len(d.values)}
	if index, ok := x.Attr("index"); ok {
		d.quantity.index, _ = strconv.Atoi(string(index))
	}
	if d.inSite == 0 && d.later {
		d.quantity.reason = Forecast
	}
}

// locate sets the site of elaborated data, which refers to a predefined location.
func (d *datex2) locate(x *xmlstream.Reader) {
	if id, ok := x.Attr("id"); ok && d.quantity.depth != 0 && d.inSite == 0 {
		d.quantity.site, d.quantity.columns = d.Table.of(id)
	}
}

func (d *datex2) startInBasic(x *xmlstream.Reader) {
	if d.class.depth != 0 {
		return
	}
	switch name := string(x.Name()); name {
	case "measurementOrCalculationTime", "time":
		d.stamp = stamp{stated: true}
		d.timed = &d.stamp
	case "forVehiclesWithCharacteristicsOf":
		d.class = vehicles{depth: x.Depth()}
	case "predefinedLocationReference":
		d.locate(x)
	case "speedPercentile":
		if d.percentile != 0 {
			d.startValue(x, Speed, "p"+d.percent)
			return
		}
		d.percentile, d.percent = x.Depth(), ""
	default:
		if v, ok := basicValues[name]; ok {
			d.startValue(x, v.measure, v.statistic)
		}
	}
}

// startValue begins a value, with its attributes.
func (d *datex2) startValue(x *xmlstream.Reader, m Measure, statistic string) {
	v := d.add(m)
	d.depth = x.Depth()
	v.statistic, v.Index = statistic, d.quantity.index
	if n, ok := x.Attr("numberOfInputValuesUsed"); ok {
		if n, err := strconv.Atoi(string(n)); err == nil {
			v.inputs = n
		}
	}
	if q, ok := x.Attr("supplierCalculatedDataQuality"); ok {
		if q, ok := number(q, '.'); ok {
			v.Quality = q
		}
	}
}

func (d *datex2) end(x *xmlstream.Reader) {
	depth := x.Depth() + 1 // of the element that ends
	switch {
	case d.depth != 0:
		d.endInValue(x, depth)
	case d.basic != 0:
		d.endInBasic(x, depth)
	case d.quantity.depth == depth:
		d.endQuantity()
	case d.inSite == depth:
		d.finish(d.site, d.at)
		d.inSite, d.site, d.columns, d.at = 0, "", nil, stamp{}
	case d.list.depth != 0:
		d.list.end(x, depth)
	default:
		d.endOutside(x)
	}
}

// endOutside reads the text of an element that is not in a value or a site of a table.
func (d *datex2) endOutside(x *xmlstream.Reader) {
	text := x.Text()
	switch string(x.Name()) {
	case "measurementSiteReference":
		if d.site == "" && d.inSite != 0 {
			d.site, d.columns = d.Table.of(text)
		}
	case "measurementLanesOverride":
		d.quantity.lane, d.quantity.lanes = laneName(string(text), ""), true
	case "reversedFlow":
		d.quantity.reversed = isTrue(text)
	case "forecast":
		if isTrue(text) {
			d.quantity.reason = Forecast
		} else if d.quantity.reason == Forecast {
			d.quantity.reason = ""
		}
	case "forecastDefault":
		d.later = isTrue(text)
	case "periodDefault":
		d.periods = seconds(text)
	case "publicationTime":
		if d.Published.IsZero() {
			d.Published = d.time(text)
		}
	default:
		d.endTime(x)
	}
}

// endTime reads a part of the timestamp that began last.
func (d *datex2) endTime(x *xmlstream.Reader) {
	text := x.Text()
	if d.timed == nil || len(text) == 0 {
		return // such as the end of a timestamp of version 3, whose parts were read before
	}
	switch string(x.Name()) {
	case "measurementTimeDefault", "timeDefault", "measurementOrCalculationTime", "timeValue", "time":
		d.timed.at = d.time(text)
		if string(x.Name()) != "timeValue" {
			d.timed = nil
		}
	case "startOfPeriod":
		d.timed.from = d.time(text)
	case "endOfPeriod":
		d.timed.to = d.time(text)
	case "timeMeaning":
		d.timed.meaning = map[string]Meaning{"beginTime": Begin, "endTime": End, "middleTime": Middle}[string(text)]
	}
}

// endInValue reads the number of a value, which is in an element of its own in all versions but the
// first.
func (d *datex2) endInValue(x *xmlstream.Reader, depth int) {
	v := &d.values[len(d.values)-1]
	text := x.Text()
	switch {
	case depth > d.depth+1: // such as the reason of an error
	case string(x.Name()) == "dataError" && depth > d.depth:
		if isTrue(text) {
			v.reason = DataError
		}
	case !v.read:
		v.set(text, '.', 1)
	}
	if depth == d.depth {
		d.depth = 0
	}
}

func (d *datex2) endInBasic(x *xmlstream.Reader, depth int) {
	switch {
	case d.class.end(x, depth):
	case depth == d.percentile:
		d.percentile = 0
	case d.percentile != 0 && string(x.Name()) == "percentage":
		d.percent = clean(string(x.Text()))
	case depth == d.basic:
		d.endBasic()
	case string(x.Name()) == "measurementOrCalculationPeriod":
		d.period = seconds(x.Text())
	default:
		d.endTime(x)
	}
}

// endBasic completes the values of a basicData.
func (d *datex2) endBasic() {
	d.basic, d.timed = 0, nil
	if len(d.values) == d.first { // a kind of data that is not in the table
		v := d.add(Unknown)
		v.Index, v.reason = d.quantity.index, Kind
	}
	class := ""
	if d.class.known {
		class = d.class.name()
	}
	for i := d.first; i < len(d.values); i++ {
		v := &d.values[i]
		v.stamp, v.period, v.class, v.classed = d.stamp, d.period, class, d.class.known
	}
}

// endQuantity completes the values with an index. A quantity without any is a value that is
// missing.
func (d *datex2) endQuantity() {
	q := d.quantity
	d.quantity = quantity{}
	if len(d.values) == q.first {
		v := d.add(Unknown)
		v.Index, v.reason = q.index, q.reason
		if v.reason == "" {
			v.reason = NoValue
		}
	}
	columns := d.columns
	if d.inSite == 0 {
		columns = q.columns
		if q.first > 0 && (q.site != d.site || q.site == "") {
			d.flush(q.first)
			q.first = 0
		}
		d.site = q.site
	}
	for i := q.first; i < len(d.values); i++ {
		v := &d.values[i]
		v.describe(columns)
		if v.period == 0 && d.inSite == 0 {
			v.period = d.periods
		}
		if q.lanes {
			v.lane = q.lane
		}
		if q.reversed {
			v.lane = strings.Trim(v.lane+".reversed", ".")
		}
		if q.reason != "" && v.reason != Kind {
			v.reason = q.reason
		}
	}
}

// flush finishes the first n values, which belong to the site before.
func (d *datex2) flush(n int) {
	next := append([]value(nil), d.values[n:]...)
	d.values = d.values[:n]
	d.finish(d.site, d.at)
	d.values = append(d.values[:0], next...)
}

func isTrue(text []byte) bool { return string(text) == "true" || string(text) == "1" }

// seconds reads a duration; one that cannot be read is 0.
func seconds(text []byte) time.Duration {
	n, ok := number(text, '.')
	if !ok || n < 0 || n > 366*24*3600 {
		return 0
	}
	return time.Duration(n * float64(time.Second))
}
