package openlr

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"trafficd/schemas/contract"
)

var encoding = base64.StdEncoding.Strict()

// Decode decodes a base64 code, which must be canonical: in the standard alphabet, padded, without
// line breaks. The error quotes the start of the code, and contains the offset of the invalid byte
// in the binary form.
func Decode(code string) (Line, error) {
	var space [128]byte // enough for 17 points; AppendDecode allocates for longer codes
	raw, err := encoding.AppendDecode(space[:0], []byte(code))
	if at := strings.IndexAny(code, "\r\n"); at >= 0 { // package base64 skips them
		err = fmt.Errorf("line break at character %d", at)
	}
	var line Line
	if err == nil {
		line, err = decode(raw)
	}
	if err != nil {
		return Line{}, fmt.Errorf("cannot decode OpenLR code %q: %w", contract.Echo(code), err)
	}
	return line, nil
}

func decode(code []byte) (Line, error) {
	if err := checkStatus(code); err != nil {
		return Line{}, err
	}
	if len(code) < minSize {
		return Line{}, fmt.Errorf("byte %d: unexpected end of data: a line has at least %d bytes", len(code), minSize)
	}
	points, offsets := (len(code)-minSize)/innerSize+2, (len(code)-minSize)%innerSize
	if offsets > maxOffsets {
		return Line{}, fmt.Errorf("byte %d: unexpected end of data: the %d bytes after %d points are neither offsets nor a point",
			len(code), offsets, points)
	}
	r := reader{code: code, at: statusSize}
	line := Line{Points: make([]Point, points)}
	for i := range line.Points {
		start := r.at
		if err := r.point(&line.Points[i], i == 0, i == points-1); err != nil {
			return Line{}, fmt.Errorf("point %d at byte %d: %w", i, start, err)
		}
	}
	if err := r.offsets(&line, offsets); err != nil {
		return Line{}, fmt.Errorf("byte %d: %w", len(code)-offsets-1, err)
	}
	return line, nil
}

func checkStatus(code []byte) error {
	if len(code) == 0 {
		return errors.New("empty code")
	}
	switch status := code[0]; {
	case status&versionMask != version:
		return fmt.Errorf("byte 0: version is %d, must be %d", status&versionMask, version)
	case status&locationMask != 0:
		return fmt.Errorf("byte 0: status 0x%02x means an area or point, must be a line", status)
	case status&attributesFlag == 0:
		return fmt.Errorf("byte 0: status 0x%02x means no attributes, which a line must have", status)
	case status&reservedMask != 0:
		return fmt.Errorf("byte 0: status 0x%02x has the reserved bit set", status)
	}
	return nil
}

// reader reads a code whose size has been checked.
type reader struct {
	code     []byte
	at       int
	lon, lat float64 // of the previous point
}

func (r *reader) point(p *Point, first, last bool) error {
	if first {
		r.lon, r.lat = r.absolute(), r.absolute()
	} else {
		r.lon, r.lat = r.lon+r.relative(), r.lat+r.relative()
	}
	if err := checkPosition(r.lon, r.lat); err != nil {
		return err
	}
	p.Lon, p.Lat = r.lon, r.lat
	class := r.byte()
	if class&classReserved != 0 {
		return fmt.Errorf("attributes 0x%02x at byte %d have a reserved bit set", class, r.at-1)
	}
	p.FRC, p.FOW = FunctionalRoadClass(class>>classShift), FormOfWay(class&threeBits)
	path := r.byte()
	p.Bearing = (float64(path&bearingMask) + 0.5) * bearingStep
	if !last {
		p.LowestFRC = FunctionalRoadClass(path >> pathShift)
		p.Distance = int((float64(r.byte())+0.5)*distanceStep + 0.5)
	}
	return nil
}

// offsets reads the n bytes after the last point, which the flags of that point must declare.
func (r *reader) offsets(line *Line, n int) error {
	end := r.code[r.at-1]
	if end&endReserved != 0 {
		return fmt.Errorf("attributes 0x%02x have the reserved bit set", end)
	}
	if declared := bits.OnesCount8(end & (positiveFlag | negativeFlag)); declared != n {
		return fmt.Errorf("attributes 0x%02x: got %d offset bytes, expected %d", end, n, declared)
	}
	var positive, negative byte
	if end&positiveFlag != 0 {
		positive = r.byte()
		line.PositiveOffset = (float64(positive) + 0.5) * offsetStep
	}
	if end&negativeFlag != 0 {
		negative = r.byte()
		line.NegativeOffset = (float64(negative) + 0.5) * offsetStep
	}
	return checkOffsets(len(line.Points), positive, negative)
}

func (r *reader) byte() byte {
	r.at++
	return r.code[r.at-1]
}

func (r *reader) absolute() float64 {
	b := r.code[r.at : r.at+3]
	r.at += 3
	return degrees(int32(b[0])<<24>>8 | int32(b[1])<<8 | int32(b[2])) // with the sign of the first byte
}

func (r *reader) relative() float64 {
	r.at += 2
	return float64(int16(binary.BigEndian.Uint16(r.code[r.at-2:]))) / relativeParts
}
