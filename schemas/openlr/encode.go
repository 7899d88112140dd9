package openlr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Encode returns the base64 code of a line. Decoding it returns the values within the tolerances,
// and coordinates within half a step of the format (about 1 m). Encoding a line that Decode
// returned yields the original code. Encode ignores LowestFRC and Distance of the last point.
func Encode(line Line) (string, error) {
	code, err := encode(line)
	if err != nil {
		return "", fmt.Errorf("cannot encode OpenLR line with %d points: %w", len(line.Points), err)
	}
	return encoding.EncodeToString(code), nil
}

func encode(line Line) ([]byte, error) {
	last := len(line.Points) - 1
	if last < 1 {
		return nil, errors.New("a line needs at least two points")
	}
	for i, p := range line.Points[1:] {
		if before := line.Points[i].Lon; math.Abs(p.Lon-before) > 180 {
			return nil, fmt.Errorf("point %d: longitude %.5f follows %.5f: the format cannot express a line across the 180th meridian",
				i+1, p.Lon, before)
		}
	}
	w := writer{code: make([]byte, 0, minSize+(last-1)*innerSize+maxOffsets)}
	w.code = append(w.code, lineStatus)
	for i := range line.Points {
		if err := w.point(&line.Points[i], i == 0, i == last); err != nil {
			return nil, fmt.Errorf("point %d: %w", i, err)
		}
	}
	end := len(w.code) - 1
	positive, err := w.offset(end, positiveFlag, line.PositiveOffset)
	if err != nil {
		return nil, fmt.Errorf("positive offset: %w", err)
	}
	negative, err := w.offset(end, negativeFlag, line.NegativeOffset)
	if err != nil {
		return nil, fmt.Errorf("negative offset: %w", err)
	}
	return w.code, checkOffsets(len(line.Points), positive, negative)
}

// writer encodes points. It keeps the coordinates of the previous point as decoded, so that
// rounding errors do not accumulate.
type writer struct {
	code     []byte
	lon, lat float64
}

func (w *writer) point(p *Point, first, last bool) error {
	if err := checkPosition(p.Lon, p.Lat); err != nil {
		return err
	}
	switch {
	case !(p.Bearing >= 0 && p.Bearing < 360):
		return fmt.Errorf("bearing %g must be at least 0 and less than 360", p.Bearing)
	case p.FRC > threeBits || p.FOW > threeBits:
		return fmt.Errorf("road class %d and form of way %d must be 0 to 7", p.FRC, p.FOW)
	case !last && p.LowestFRC > threeBits:
		return fmt.Errorf("lowest road class %d must be 0 to 7", p.LowestFRC)
	case !last && (p.Distance < 0 || p.Distance > maxDistance):
		return fmt.Errorf("distance %d m to the next point must be 0 to %d", p.Distance, maxDistance)
	}
	if first {
		lon, lat := interval(p.Lon, 180), interval(p.Lat, 90)
		w.lon, w.lat = degrees(lon), degrees(lat)
		w.code = append(w.code, byte(lon>>16), byte(lon>>8), byte(lon), byte(lat>>16), byte(lat>>8), byte(lat))
	} else {
		lon, lat := math.Round((p.Lon-w.lon)*relativeParts), math.Round((p.Lat-w.lat)*relativeParts)
		for _, v := range [...]float64{lon, lat} {
			if v < math.MinInt16 || v > math.MaxInt16 {
				return fmt.Errorf("(%.5f, %.5f) is more than 0.32767 degrees from the previous point", p.Lon, p.Lat)
			}
			w.code = binary.BigEndian.AppendUint16(w.code, uint16(int16(v)))
		}
		w.lon, w.lat = w.lon+lon/relativeParts, w.lat+lat/relativeParts
		if err := checkPosition(w.lon, w.lat); err != nil { // rounding may move a point beyond a pole
			return err
		}
	}
	bearing := byte(p.Bearing / bearingStep)
	w.code = append(w.code, byte(p.FRC)<<classShift|byte(p.FOW))
	if last {
		w.code = append(w.code, bearing)
	} else {
		w.code = append(w.code, byte(p.LowestFRC)<<pathShift|bearing, byte(float64(p.Distance)/distanceStep))
	}
	return nil
}

// offset writes an offset that is not 0, sets its flag in byte end, and returns its interval.
func (w *writer) offset(end int, flag byte, part float64) (byte, error) {
	if part == 0 {
		return 0, nil
	}
	if !(part > 0 && part < 1) {
		return 0, fmt.Errorf("%g must be at least 0 and less than 1", part)
	}
	n := byte(part / offsetStep)
	w.code[end] |= flag
	w.code = append(w.code, n)
	return n, nil
}
