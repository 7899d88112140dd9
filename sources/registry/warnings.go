package registry

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"trafficd/pipeline/batch"
)

// doubtful counts the entries of a list whose code or position seems to be wrong.
type doubtful struct {
	entries  int
	warnings []string // about the first maxWarnings
}

const maxWarnings = 10

func (d *doubtful) add(entries int, warnings ...string) {
	d.entries += entries
	d.warnings = append(d.warnings, warnings[:min(len(warnings), maxWarnings-len(d.warnings))]...)
}

// The columns of a detector's position in degrees. The first that is not empty counts, as in the
// view measurements_detectors.
var (
	longitudes = []string{"longitude", "lon", "lng"}
	latitudes  = []string{"latitude", "lat"}
)

// examined is a list of one product instance while it is read.
type examined struct {
	batch.DetectorList
	entry     string // what the list consists of: line, entry or row
	doubtful  doubtful
	positions []position
}

// position is the position of a detector, in degrees.
type position struct {
	at                  int // see addEntry
	longitude, latitude float64
}

func (l *examined) warn(at int, format string, args ...any) {
	l.doubtful.add(1, fmt.Sprintf("%s %d: ", l.entry, at)+fmt.Sprintf(format, args...))
}

// examine warns of an entry that is doubtful, and otherwise adds its position to those of the list.
func (l *examined) examine(at int, code string, others []batch.Attribute) {
	lon, lat := column(longitudes, others), column(latitudes, others)
	x, lonErr := strconv.ParseFloat(lon.Value, 64)
	y, latErr := strconv.ParseFloat(lat.Value, 64)
	var reason string
	switch {
	case !batch.IsCode(code):
		reason = fmt.Sprintf("left out: the code has %d bytes, must have 1 to %d", len(code), batch.MaxCodeLen)
	case rounded.MatchString(code):
		reason = fmt.Sprintf("the code %q looks like a longer number that a spreadsheet has rounded: format the column as text", code)
	case lon.Value == "" && lat.Value == "":
		return
	case lon.Value == "" || lat.Value == "":
		reason = fmt.Sprintf("%s is set, but the other coordinate is empty", lon.Name+lat.Name)
	case lonErr != nil:
		reason = notDegrees(lon)
	case latErr != nil:
		reason = notDegrees(lat)
	case !(math.Abs(x) <= 180):
		reason = fmt.Sprintf("%s %s is not between -180 and 180", lon.Name, lon.Value)
	case !(math.Abs(y) <= 90):
		reason = fmt.Sprintf("%s %s is not between -90 and 90", lat.Name, lat.Value)
		if math.Abs(x) <= 90 && math.Abs(y) <= 180 {
			reason += ": is it exchanged with the longitude?"
		}
	case x == 0 && y == 0:
		reason = "the position is 0, 0, in the Atlantic"
	default:
		l.positions = append(l.positions, position{at, x, y})
		return
	}
	l.warn(at, "%s", reason)
}

// located reports whether an entry has a position.
func located(others []batch.Attribute) bool {
	_, lonErr := strconv.ParseFloat(column(longitudes, others).Value, 64)
	_, latErr := strconv.ParseFloat(column(latitudes, others).Value, 64)
	return lonErr == nil && latErr == nil
}

// rounded matches a number as spreadsheets write one that has too many digits for its cell.
var rounded = regexp.MustCompile(`^[0-9]([.,][0-9]+)?E[+-][0-9]{2,}$`)

func notDegrees(a batch.Attribute) string {
	return fmt.Sprintf("%s is %.64q, must be a number of degrees such as 56.15", a.Name, a.Value)
}

// column returns the first attribute with one of the names, without a value if there is none.
func column(names []string, others []batch.Attribute) batch.Attribute {
	for _, name := range names {
		if i := slices.IndexFunc(others, func(a batch.Attribute) bool { return a.Name == name }); i >= 0 {
			return others[i]
		}
	}
	return batch.Attribute{}
}

// compare warns of positions that are far from the middle of the list, but would be near it with
// longitude and latitude exchanged.
func (l *examined) compare() {
	middle := func(coordinate func(position) float64) float64 {
		all := make([]float64, len(l.positions))
		for i, p := range l.positions {
			all[i] = coordinate(p)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	if len(l.positions) < 3 {
		return
	}
	x := middle(func(p position) float64 { return p.longitude })
	y := middle(func(p position) float64 { return p.latitude })
	for _, p := range l.positions {
		away := math.Hypot(p.longitude-x, p.latitude-y)
		if away > 1 && math.Hypot(p.latitude-x, p.longitude-y) < away/10 {
			l.warn(p.at, "longitude %g and latitude %g seem to be exchanged: the middle of the list is at %g and %g",
				p.longitude, p.latitude, x, y)
		}
	}
}
