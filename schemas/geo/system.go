package geo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"trafficd/schemas/contract"
)

// Format is a CoordFormat of contract 5.4.
type Format string

// The formats, see contract 3.2.
const (
	GeoDecimal       Format = "OG_GEODECIMAL"       // degrees
	Mercator         Format = "VENDOR_MERCATOR"     // metres on a sphere
	GeoMinSec        Format = "VENDOR_GEOMINSEC"    // degrees, minutes and tenths of seconds as digits
	VendorGeoDecimal Format = "VENDOR_GEODECIMAL"   // degrees × 100000
	Conform          Format = "VENDOR_CONFORM"      // metres on a cone
	SuperConform     Format = "VENDOR_SUPERCONFORM" // like Conform, but positive in all of Europe
	SmartUnits       Format = "VENDOR_SMARTUNITS"   // steps of 4.8 m
	SRID             Format = "OG_SRID"             // as specified by an EPSG code
)

// formats lists all formats in the order of contract 5.4, which the XML schemas share.
var formats = []struct {
	format Format
	projection
}{
	{GeoDecimal, degrees(1)},
	{Mercator, vendorMercator},
	{GeoMinSec, minutesSeconds{}},
	{VendorGeoDecimal, degrees(100_000)},
	{Conform, conform},
	{SuperConform, superConform},
	{SmartUnits, smartUnits},
	{SRID, nil}, // see epsgProjection
}

// Formats returns all formats in the order of contract 5.4.
func Formats() []Format {
	list := make([]Format, len(formats))
	for i, f := range formats {
		list[i] = f.format
	}
	return list
}

// Canonical replaces a manufacturer's prefix in the name of a format with VENDOR: PTV_MERCATOR with
// the prefix PTV becomes VENDOR_MERCATOR. Other names are returned unchanged.
func Canonical(name, prefix string) string {
	if rest, ok := strings.CutPrefix(name, prefix+"_"); ok && prefix != "" {
		return "VENDOR_" + rest
	}
	return name
}

// WithPrefix is the inverse of Canonical for all names of formats in a text. With an empty prefix,
// it returns the text unchanged.
func WithPrefix(text, prefix string) string {
	for _, f := range formats {
		if rest, ok := strings.CutPrefix(string(f.format), "VENDOR"); ok && prefix != "" {
			text = strings.ReplaceAll(text, string(f.format), prefix+rest)
		}
	}
	return text
}

// ErrNoSRID means that the format is OG_SRID but there is no srId.
var ErrNoSRID = errors.New("OG_SRID requires an srId, such as EPSG:25832")

// System is a coordinate system. The zero value is not a valid system.
type System struct {
	format Format
	epsg   int // EPSG code for the format SRID, otherwise 0
	projection
}

// projection converts degrees to the coordinates of a system and back. Both methods return an error
// for a point outside the system's domain, but need not check whether a result is finite.
type projection interface {
	forward(lon, lat float64) (x, y float64, err error)
	inverse(x, y float64) (lon, lat float64, err error)
}

const knownEPSG = "EPSG:4326, 4258, 3857, 25828–25838, 32601–32660 and 32701–32760"

// ParseSystem returns the system of a format. srID, such as "EPSG:25832" or "25832", is used only
// for OG_SRID; without it the error is ErrNoSRID.
func ParseSystem(format, srID string) (System, error) {
	if Format(format) != SRID {
		for _, f := range formats {
			if f.format == Format(format) {
				return System{format: f.format, projection: f.projection}, nil
			}
		}
		return System{}, fmt.Errorf("unknown format %q: must be one of %v", contract.Echo(format), Formats())
	}
	text := strings.TrimSpace(srID)
	if text == "" {
		return System{}, ErrNoSRID
	}
	const authority = "EPSG:"
	if len(text) > len(authority) && strings.EqualFold(text[:len(authority)], authority) {
		text = text[len(authority):]
	}
	code, err := strconv.ParseUint(text, 10, 31)
	p := epsgProjection(int(code))
	if err != nil || p == nil {
		return System{}, fmt.Errorf("unknown srId %q: must be one of %s", contract.Echo(srID), knownEPSG)
	}
	return System{format: SRID, epsg: int(code), projection: p}, nil
}

func epsgProjection(code int) projection {
	switch {
	case code == 4326 || code == 4258: // WGS84; ETRS89, without a datum shift
		return degrees(1)
	case code == 3857:
		return webMercator
	case 25828 <= code && code <= 25838:
		return newUTM(grs80, code-25800, 0)
	case 32601 <= code && code <= 32660:
		return newUTM(wgs84, code-32600, 0)
	case 32701 <= code && code <= 32760:
		return newUTM(wgs84, code-32700, 10_000_000)
	}
	return nil
}

// String returns the format, followed by the code for OG_SRID: "OG_SRID EPSG:25832".
func (s System) String() string {
	if s.format == SRID {
		return fmt.Sprintf("%s EPSG:%d", s.format, s.epsg)
	}
	return string(s.format)
}

// Format returns the format of the system.
func (s System) Format() Format { return s.format }

// EPSG returns the code of an OG_SRID system, or 0 for other formats.
func (s System) EPSG() int { return s.epsg }

// agrees reports whether coordinates in the system may have the given SRID. Manufacturers' formats
// have no known SRID, so any SRID is allowed.
func (s System) agrees(srID int) bool {
	switch s.format {
	case SRID:
		return srID == s.epsg
	case GeoDecimal:
		return srID == 4326 || srID == 4258 || srID == 4979 || srID == 4937 // the last two have a height
	}
	return true
}
