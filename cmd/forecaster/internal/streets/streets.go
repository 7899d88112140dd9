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

	"trafficd/cmd/internal/must"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/settings"
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
}

// DefaultConfig returns the default settings, without a file.
func DefaultConfig() Config {
	return Config{Columns: Columns{
		Code: "detectorCode", Street: "street", FromNode: "fromnode", OpenLR: "openlr", Length: "length",
		FromLat: "from_lat", FromLon: "from_lon", ToLat: "to_lat", ToLon: "to_lon",
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
}

const (
	maxInvalid = 10   // maximum number of errors in Content.Invalid
	maxOpenLR  = 4096 // maximum length of an OpenLR code that the daemon accepts, in bytes
)

// Content is the parsed content of the detectors file.
type Content struct {
	Streets  []Street // sorted by street and fromnode
	Unplaced int      // detectors without a street
	Invalid  error    // the first errors of ignored entries, joined
}

// Read reads the detectors file and combines its detectors into streets.
func Read(c Config) (content Content, err error) {
	defer must.Return(&err)
	body, err := os.ReadFile(c.Path)
	must.Do(err, "cannot read the detectors")
	var rows []map[string]string
	list := registry.FileConfig{Path: c.Path, Column: c.Columns.Code}
	err = list.Parse(bytes.TrimPrefix(body, []byte("\ufeff")), "", func(_, code string, others ...batch.Attribute) {
		row := map[string]string{c.Columns.Code: code}
		for _, o := range others {
			row[o.Name] = o.Value
		}
		rows = append(rows, row)
	})
	if err == nil && !slices.ContainsFunc(rows, func(r map[string]string) bool { return r[c.Columns.Code] != "" }) {
		err = fmt.Errorf("no detector has a code in %q", c.Columns.Code)
	}
	must.Do(err, "cannot read the detectors in "+c.Path)
	content = combine(rows, c.Columns)
	if content.Streets == nil {
		return content, errors.Join(fmt.Errorf("cannot read the detectors in %s: no detector has a valid street in %q", c.Path, c.Columns.Street),
			content.Invalid)
	}
	return content, nil
}

func combine(rows []map[string]string, c Columns) (content Content) {
	slices.SortStableFunc(rows, func(a, b map[string]string) int { return strings.Compare(a[c.Code], b[c.Code]) })
	index := make(map[[2]int32]int) // in content.Streets, by street and fromnode
	seen := make(map[string]bool)
	var invalid []error
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
		}
		s := &content.Streets[i]
		length, _ := strconv.ParseFloat(row[c.Length], 64)
		if !(length > 0) || math.IsInf(length, 1) {
			length = 0 // missing
		}
		s.Detectors, s.Lengths = append(s.Detectors, code), append(s.Lengths, length)
		if s.OpenLR == "" {
			s.OpenLR = location(row, c, length)
		}
	}
	if more := len(invalid) - maxInvalid; more > 0 {
		invalid = append(invalid[:maxInvalid], fmt.Errorf("%d more detectors are ignored", more))
	}
	content.Invalid = errors.Join(invalid...)
	for _, s := range content.Streets {
		complete(s.Lengths)
	}
	slices.SortFunc(content.Streets, func(a, b Street) int {
		return cmp.Or(cmp.Compare(a.Street, b.Street), cmp.Compare(a.FromNode, b.FromNode))
	})
	return content
}

// complete replaces missing lengths with the mean of the others, or with 1 if all are missing.
func complete(lengths []float64) {
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
}

// location returns the OpenLR code of a detector. If it has none, location encodes its end points,
// or returns "" if it cannot.
func location(row map[string]string, c Columns, length float64) string {
	if code := row[c.OpenLR]; code != "" {
		return code
	}
	var ends [4]float64
	for i, name := range []string{c.FromLat, c.FromLon, c.ToLat, c.ToLon} {
		v, err := strconv.ParseFloat(row[name], 64)
		if err != nil {
			return ""
		}
		ends[i] = v
	}
	const metres = 111_320
	x, y := (ends[3]-ends[1])*math.Cos(ends[0]*math.Pi/180)*metres, (ends[2]-ends[0])*metres
	if length == 0 {
		length = math.Hypot(x, y)
	}
	line := openlr.Straight([2]float64{ends[1], ends[0]}, [2]float64{ends[3], ends[2]}, int(min(length, 14_000)), 3)
	code, err := openlr.Encode(line)
	if err != nil {
		return ""
	}
	return code
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
