package geo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Format is a CoordFormat of the contract 5.4.
type Format string

// The formats.
const (
	GeoDecimal       Format = "OG_GEODECIMAL"       // degrees
	Mercator         Format = "VENDOR_MERCATOR"     // metres on a sphere
	GeoMinSec        Format = "VENDOR_GEOMINSEC"    // degrees, minutes and tenths of seconds as digits
	VendorGeoDecimal Format = "VENDOR_GEODECIMAL"   // degrees × 100000
	Conform          Format = "VENDOR_CONFORM"      // metres on a cone
	SuperConform     Format = "VENDOR_SUPERCONFORM" // the same, all of them positive in Europe
	SmartUnits       Format = "VENDOR_SMARTUNITS"   // steps of 4.8 m
	SRID             Format = "OG_SRID"             // as the EPSG code says
)

// Formats gives all formats, in the order of the specification.
func Formats() []Format {
	return []Format{GeoDecimal, Mercator, GeoMinSec, VendorGeoDecimal, Conform, SuperConform, SmartUnits, SRID}
}

// ErrUnknownSystem says that a format or an srId is none that is known.
var ErrUnknownSystem = errors.New("unknown coordinate system")

// System is a coordinate system. The zero value is none.
type System struct {
	format Format
	epsg   int // with SRID
	projection
}

// projection turns degrees into the coordinates of a system and back. Neither
// way has to look whether a result is a finite number; both tell where a point
// is not in the system's domain.
type projection interface {
	forward(lon, lat float64) (x, y float64, err error)
	inverse(x, y float64) (lon, lat float64, err error)
}

// ParseSystem gives the system of a format; srID, "EPSG:25832" or "25832", counts
// with OG_SRID only. The error is ErrUnknownSystem.
func ParseSystem(format, srID string) (System, error) {
	switch f := Format(format); f {
	case GeoDecimal:
		return System{format: f, projection: degrees(1)}, nil
	case VendorGeoDecimal:
		return System{format: f, projection: degrees(100_000)}, nil
	case GeoMinSec:
		return System{format: f, projection: minutesSeconds{}}, nil
	case Mercator:
		return System{format: f, projection: vendorMercator}, nil
	case SmartUnits:
		return System{format: f, projection: smartUnits}, nil
	case Conform:
		return System{format: f, projection: conform}, nil
	case SuperConform:
		return System{format: f, projection: superConform}, nil
	case SRID:
		return epsgSystem(srID)
	}
	return System{}, fmt.Errorf("%w: format %.64q; known are %v", ErrUnknownSystem, format, Formats())
}

const knownEPSG = "EPSG:4326, 4258, 3857, 25828–25838, 32601–32660 and 32701–32760"

func epsgSystem(srID string) (System, error) {
	text := strings.TrimSpace(srID)
	if text == "" {
		return System{}, fmt.Errorf("%w: OG_SRID needs an srId, as EPSG:25832", ErrUnknownSystem)
	}
	const authority = "EPSG:"
	if len(text) > len(authority) && strings.EqualFold(text[:len(authority)], authority) {
		text = text[len(authority):]
	}
	code, err := strconv.ParseUint(text, 10, 31)
	p := epsgProjection(int(code))
	if err != nil || p == nil {
		return System{}, fmt.Errorf("%w: srId %.64q; known are %s", ErrUnknownSystem, srID, knownEPSG)
	}
	return System{format: SRID, epsg: int(code), projection: p}, nil
}

func epsgProjection(code int) projection {
	switch {
	case code == 4326 || code == 4258: // WGS84; ETRS89, which is not shifted
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

// String gives the format, with OG_SRID the code: "OG_SRID EPSG:25832".
func (s System) String() string {
	if s.format == SRID {
		return fmt.Sprintf("%s EPSG:%d", s.format, s.epsg)
	}
	return string(s.format)
}

// Format gives the format.
func (s System) Format() Format { return s.format }

// EPSG gives the code that goes with OG_SRID, 0 with other formats.
func (s System) EPSG() int { return s.epsg }

// agrees tells whether coordinates in the system may be labelled with the SRID.
// Those of a vendor have no number that is known here.
func (s System) agrees(srID int) bool {
	switch s.format {
	case SRID:
		return srID == s.epsg
	case GeoDecimal:
		return srID == 4326 || srID == 4258 || srID == 4979 || srID == 4937 // the latter with a height
	}
	return true
}
