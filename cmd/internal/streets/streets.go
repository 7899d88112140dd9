// Package streets combines the forecasts of detectors into forecasts of streets.
//
// The list of detectors is the CSV or JSON file of the registry feed, with additional columns.
// Detectors without a street are ignored.
//
// # Rule
//
// The speed of a street is the total length of its detectors' sections divided by the total travel
// time, i.e. the harmonic mean of the speeds, weighted by length. A detector without a length is
// given the mean length of the others. Detectors without a forecast are omitted.
package streets

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/paulmach/orb/encoding/wkt"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/openlr"
	"trafficd/sources/registry"
)

// Config is the detectors section of the configuration.
type Config struct {
	Path    string  `setting:"path"`    // CSV with a header, or a JSON array of objects if the name ends in .json
	Columns Columns `setting:"columns"` // names of columns, or of members in JSON; only code and street must exist
}

// Columns holds the names of columns, or of members in JSON. Only Code and Street are required in
// the file.
type Columns struct {
	Code     string `setting:"code"`     // code of the detector
	Street   string `setting:"street"`   // number of the street
	FromNode string `setting:"fromnode"` // node at which the street starts; 0 if missing
	OpenLR   string `setting:"openlr"`   // OpenLR location reference in base64; derived from the end points if missing
	Length   string `setting:"length"`   // length of the detector's section in metres; the mean of the street's other sections if missing
	FromLat  string `setting:"from_lat"` // latitude of the section's start in degrees
	FromLon  string `setting:"from_lon"` // longitude of the section's start
	ToLat    string `setting:"to_lat"`   // latitude of the section's end
	ToLon    string `setting:"to_lon"`   // longitude of the section's end
	Name     string `setting:"name"`     // name of the street, for the map
	Geometry string `setting:"geometry"` // course of the section as a WKT LINESTRING of longitudes and latitudes, for the map
}

// DefaultConfig returns the default settings, without a file.
func DefaultConfig() Config {
	return Config{Columns: Columns{
		Code: "detectorCode", Street: "street", FromNode: "fromnode", OpenLR: "openlr", Length: "length",
		FromLat: "from_lat", FromLon: "from_lon", ToLat: "to_lat", ToLon: "to_lon",
		Name: "name", Geometry: "geometry",
	}}
}

// Validate reports every invalid setting.
func (c Config) Validate() error {
	return errors.Join(
		settings.Check(c.Path != "", "path must be set to the file that assigns detectors to streets"),
		settings.Check(c.Columns.Code != "", "columns.code must be set"),
		settings.Check(c.Columns.Street != "", "columns.street must be set"),
	)
}

// Street is a street in one direction.
type Street struct {
	Street, FromNode int32
	OpenLR           string
	Detectors        []string // sorted
	Lengths          []float64
	Length           float64   // sum of the lengths in metres; 0 if no detector has one
	Name             string    // empty if no detector has one
	Geometry         []float64 // longitudes and latitudes in turn along the street; nil if no detector has one
}

const (
	maxErrors = 10   // maximum number of errors in Content.Invalid, and in Content.Locations
	maxOpenLR = 4096 // maximum length of an OpenLR code that the daemon accepts, in bytes
)

// Content is the parsed content of the detectors file.
type Content struct {
	Streets   []Street // sorted by street and fromnode
	Detectors int      // in the file
	Unplaced  int      // detectors without a street
	Invalid   error    // the first errors of ignored entries, joined
	Unlocated int      // streets whose location is unknown to readers of the forecasts
	Locations error    // why, for the first of them, joined
}

// Warnings returns what is wrong with the file, but does not prevent its use.
func (c Content) Warnings() error { return errors.Join(c.Invalid, c.Locations) }

// Read reads the detectors file and combines its detectors into streets.
func Read(c Config) (content Content, err error) {
	body, err := os.ReadFile(c.Path)
	if err != nil {
		return content, fmt.Errorf("cannot read the detectors: %w", err)
	}
	var rows []map[string]string
	list := registry.FileConfig{Path: c.Path, Column: c.Columns.Code}
	err = list.Parse(bytes.TrimPrefix(body, []byte("\ufeff")), "", func(_ int, _, code string, others ...batch.Attribute) {
		row := map[string]string{c.Columns.Code: code}
		for _, o := range others {
			row[o.Name] = o.Value
		}
		rows = append(rows, row)
	})
	if err == nil && !slices.ContainsFunc(rows, func(r map[string]string) bool { return r[c.Columns.Code] != "" }) {
		err = fmt.Errorf("no detector has a code in %q", c.Columns.Code)
	}
	if err != nil {
		return content, fmt.Errorf("cannot read the detectors in %s: %w", c.Path, err)
	}
	content = combine(rows, c.Columns)
	if content.Streets == nil {
		return content, errors.Join(fmt.Errorf("cannot read the detectors in %s: no detector has a valid street in %q", c.Path, c.Columns.Street),
			content.Invalid)
	}
	return content, nil
}

func combine(rows []map[string]string, c Columns) (content Content) {
	slices.SortStableFunc(rows, func(a, b map[string]string) int { return strings.Compare(a[c.Code], b[c.Code]) })
	content.Detectors = len(rows)
	index := make(map[[2]int32]int) // in content.Streets, by street and fromnode
	seen := make(map[string]bool)
	var invalid []error
	var locations []error // indexed like content.Streets; nil: the street has a location
	for _, row := range rows {
		code := row[c.Code]
		if code == "" || row[c.Street] == "" {
			content.Unplaced++
			continue
		}
		street, err := strconv.ParseInt(row[c.Street], 10, 32)
		node, err2 := int64(0), error(nil)
		if text := row[c.FromNode]; text != "" {
			node, err2 = strconv.ParseInt(text, 10, 32)
		}
		if err = errors.Join(err, err2); err != nil || street == 0 && node == 0 || seen[code] {
			invalid = append(invalid, fmt.Errorf("detector %q is ignored: "+
				"its street and fromnode must be 32-bit integers, not both 0, and its code must be unique", code))
			continue
		}
		if text := row[c.OpenLR]; len(text) > maxOpenLR || strings.ContainsRune(text, utf8.RuneError) {
			invalid = append(invalid, fmt.Errorf("detector %q is ignored: its OpenLR code must be UTF-8 and have at most %d bytes", code, maxOpenLR))
			continue
		}
		seen[code] = true
		key := [2]int32{int32(street), int32(node)}
		i, ok := index[key]
		if !ok {
			i = len(content.Streets)
			index[key] = i
			content.Streets = append(content.Streets, Street{Street: key[0], FromNode: key[1]})
			locations = append(locations, errNoLocation)
		}
		s := &content.Streets[i]
		length := lengthOf(row[c.Length])
		s.Detectors, s.Lengths = append(s.Detectors, code), append(s.Lengths, length)
		if err := s.describe(row[c.Name], row[c.Geometry]); err != nil {
			invalid = append(invalid, fmt.Errorf("the geometry of detector %q is ignored: %w", code, err))
		}
		if locations[i] == nil {
			continue
		}
		switch openLR, err := location(row, c, length); {
		case err == nil:
			s.OpenLR, locations[i] = openLR, nil
		case err != errNoLocation && locations[i] == errNoLocation:
			s.OpenLR, locations[i] = openLR, fmt.Errorf("detector %q: %w", code, err)
		}
	}
	content.Invalid = join(invalid, "%d more detectors are ignored")
	var unlocated []error
	for i, s := range content.Streets {
		content.Streets[i].Length = complete(s.Lengths)
		if locations[i] != nil {
			unlocated = append(unlocated, fmt.Errorf("street %d from node %d has no location: %w", s.Street, s.FromNode, locations[i]))
		}
	}
	content.Unlocated, content.Locations = len(unlocated), join(unlocated, "%d more streets have no location")
	slices.SortFunc(content.Streets, func(a, b Street) int {
		return cmp.Or(cmp.Compare(a.Street, b.Street), cmp.Compare(a.FromNode, b.FromNode))
	})
	return content
}

// complete replaces missing lengths with the mean of the others, or with 1 if all are missing. It
// returns their total, or 0 if all are missing.
func complete(lengths []float64) (total float64) {
	sum, n := 0.0, 0
	for _, l := range lengths {
		if l > 0 {
			sum += l
			n++
		}
	}
	mean := 1.0
	if n > 0 {
		mean = sum / float64(n)
	}
	for i, l := range lengths {
		if l <= 0 {
			lengths[i] = mean
		}
	}
	return mean * float64(min(n, 1)*len(lengths)) // the missing ones have the mean too
}

// join returns the first errors, joined. more is the format of the number of the others.
func join(errs []error, more string) error {
	if n := len(errs) - maxErrors; n > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf(more, n))
	}
	return errors.Join(errs...)
}

// lengthOf returns a length in metres, or 0 if it is missing or invalid.
func lengthOf(text string) float64 {
	length, _ := strconv.ParseFloat(text, 64)
	if !(length > 0) || math.IsInf(length, 1) {
		return 0
	}
	return length
}

// describe sets the name and the geometry if the street does not have them yet.
func (s *Street) describe(name, geometry string) error {
	s.Name = cmp.Or(s.Name, name)
	if geometry == "" || s.Geometry != nil {
		return nil
	}
	line, err := wkt.UnmarshalLineString(geometry)
	if err != nil || len(line) < 2 {
		return fmt.Errorf("it is %.64q, must be a LINESTRING with at least two points, such as LINESTRING (10.2 56.15, 10.21 56.16)", geometry)
	}
	for _, p := range line {
		s.Geometry = append(s.Geometry, math.Round(p[0]*1e6)/1e6, math.Round(p[1]*1e6)/1e6)
	}
	return nil
}

var errNoLocation = errors.New("none of its detectors has an OpenLR code or the coordinates of its ends")

// location returns the OpenLR code of a detector or, if it has none, encodes its end points. If it
// has neither, the error is errNoLocation. The code of a detector may be in a format that package
// openlr cannot read, so location returns it with the error.
func location(row map[string]string, c Columns, length float64) (string, error) {
	if code := row[c.OpenLR]; code != "" {
		_, err := openlr.Decode(code)
		return code, err
	}
	var ends [4]float64
	names := []string{c.FromLat, c.FromLon, c.ToLat, c.ToLon}
	missing := 0
	for i, name := range names {
		if row[name] == "" {
			missing++
			continue
		}
		v, err := strconv.ParseFloat(row[name], 64)
		if err != nil {
			return "", fmt.Errorf("%s is %.64q, must be a number of degrees such as 56.15", name, row[name])
		}
		ends[i] = v
	}
	switch missing {
	case 0:
	case len(names):
		return "", errNoLocation
	default:
		return "", fmt.Errorf("only some of %s are set", strings.Join(names, ", "))
	}
	const metres = 111_320
	x, y := math.Remainder(ends[3]-ends[1], 360)*math.Cos((ends[0]+ends[2])/2*math.Pi/180)*metres, (ends[2]-ends[0])*metres
	length = max(length, math.Hypot(x, y)) // a shorter way does not exist, and no reader would find it
	return openlr.Encode(openlr.Ends([2]float64{ends[1], ends[0]}, [2]float64{ends[3], ends[2]}, int(min(length, 1e9))))
}

// Speed combines the speeds of a street's detectors; NaN means no forecast. It returns NaN if no
// detector has one.
func (s *Street) Speed(speeds []float64) float64 {
	var length, hours float64
	for i, v := range speeds {
		if !math.IsNaN(v) {
			length += s.Lengths[i]
			hours += s.Lengths[i] / max(v, 1) // at 0 the travel time would be infinite
		}
	}
	return length / hours
}
