package openlr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Encode writes a line in base64. Every value is put into the interval that it
// lies in, so that Decode gives it back within the tolerances; coordinates
// within half a step of the format (about 1 m). What Decode gave is encoded to
// the same code. LowestFRC and Distance of the last point are not looked at.
func Encode(line Line) (string, error) {
	code, err := EncodeBinary(line)
	if err != nil {
		return "", err
	}
	return encoding.EncodeToString(code), nil
}

// EncodeBinary is Encode without the base64. The bytes belong to the caller.
func EncodeBinary(line Line) ([]byte, error) {
	code, err := encode(line)
	if err != nil {
		return nil, fmt.Errorf("cannot encode OpenLR line of %d points: %w", len(line.Points), err)
	}
	return code, nil
}

func encode(line Line) ([]byte, error) {
	last := len(line.Points) - 1
	if last < 1 {
		return nil, errors.New("it needs at least two")
	}
	w := writer{code: make([]byte, 0, minSize+(last-1)*innerSize+maxOffsets)}
	w.code = append(w.code, lineStatus)
	for i := range line.Points {
		if err := w.point(&line.Points[i], i == 0, i == last); err != nil {
			return nil, fmt.Errorf("point %d: %w", i, err)
		}
	}
	if err := w.offsets(line); err != nil {
		return nil, err
	}
	return w.code, nil
}

// writer keeps the point before as a reader will see it, so that what is lost
// by rounding does not add up along the line.
type writer struct {
	code     []byte
	lon, lat float64
}

func (w *writer) point(p *Point, first, last bool) error {
	if err := checkPoint(p); err != nil {
		return err
	}
	if err := w.place(p, first); err != nil {
		return err
	}
	w.code = append(w.code, byte(p.FRC)<<classShift|byte(p.FOW))
	bearing := byte(p.Bearing / bearingStep)
	if last {
		w.code = append(w.code, bearing)
		return nil
	}
	if err := checkPath(p); err != nil {
		return err
	}
	w.code = append(w.code, byte(p.LowestFRC)<<pathShift|bearing, byte(float64(p.Distance)/distanceStep))
	return nil
}

func checkPoint(p *Point) error {
	if err := onEarth(p.Lon, p.Lat); err != nil {
		return err
	}
	if !(p.Bearing >= 0 && p.Bearing < 360) {
		return fmt.Errorf("bearing %g has to be at least 0 and below 360", p.Bearing)
	}
	if p.FRC > threeBits || p.FOW > threeBits {
		return fmt.Errorf("road class %d and form of way %d have to be 0 to 7", p.FRC, p.FOW)
	}
	return nil
}

// checkPath looks at what describes the way to the next point.
func checkPath(p *Point) error {
	if p.LowestFRC > threeBits {
		return fmt.Errorf("lowest road class %d has to be 0 to 7", p.LowestFRC)
	}
	if p.Distance < 0 || p.Distance > maxDistance {
		return fmt.Errorf("distance %d m to the next point has to be 0 to %d", p.Distance, maxDistance)
	}
	return nil
}

// place writes the coordinates.
func (w *writer) place(p *Point, first bool) error {
	if first {
		lon, lat := interval(p.Lon, 180), interval(p.Lat, 90)
		w.lon, w.lat = degrees(lon), degrees(lat)
		w.code = append(w.code, byte(lon>>16), byte(lon>>8), byte(lon), byte(lat>>16), byte(lat>>8), byte(lat))
		return nil
	}
	lon, lat := math.Round((p.Lon-w.lon)*relativeParts), math.Round((p.Lat-w.lat)*relativeParts)
	if !fits(lon) || !fits(lat) {
		return fmt.Errorf("(%.5f, %.5f) is more than 0.32767 degrees from the point before", p.Lon, p.Lat)
	}
	w.lon, w.lat = w.lon+lon/relativeParts, w.lat+lat/relativeParts
	w.code = binary.BigEndian.AppendUint16(w.code, uint16(int16(lon)))
	w.code = binary.BigEndian.AppendUint16(w.code, uint16(int16(lat)))
	return onEarth(w.lon, w.lat) // at a pole rounding may lead past it
}

func fits(v float64) bool { return v >= math.MinInt16 && v <= math.MaxInt16 }

// offsets writes those that are not 0 and announces them in the last point.
func (w *writer) offsets(line Line) error {
	end := len(w.code) - 1
	positive, err := w.offset(end, positiveFlag, line.PositiveOffset)
	if err != nil {
		return fmt.Errorf("positive offset: %w", err)
	}
	negative, err := w.offset(end, negativeFlag, line.NegativeOffset)
	if err != nil {
		return fmt.Errorf("negative offset: %w", err)
	}
	return leaveSomething(len(line.Points), positive, negative)
}

func (w *writer) offset(end int, flag byte, part float64) (byte, error) {
	if part == 0 {
		return 0, nil
	}
	if !(part > 0 && part < 1) {
		return 0, fmt.Errorf("%g has to be at least 0 and below 1", part)
	}
	n := byte(part / offsetStep)
	w.code[end] |= flag
	w.code = append(w.code, n)
	return n, nil
}
