package openlr

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Decode reads a code in base64 (standard alphabet, padded, canonical, nothing
// around it). The error quotes the beginning of the code and says at which byte
// of the binary form, counted from 0, what is wrong.
func Decode(code string) (Line, error) {
	line, err := decodeText(code)
	if err != nil {
		return Line{}, fmt.Errorf("cannot decode OpenLR code %.64q: %w", code, err)
	}
	return line, nil
}

// DecodeBinary reads a code as it stands before base64. It keeps nothing of it.
func DecodeBinary(code []byte) (Line, error) {
	line, err := decode(code)
	if err != nil {
		return Line{}, fmt.Errorf("cannot decode OpenLR code of %d bytes: %w", len(code), err)
	}
	return line, nil
}

var encoding = base64.StdEncoding.Strict()

func decodeText(code string) (Line, error) {
	// The base64 of Go skips line ends, the strict one too.
	if at := strings.IndexAny(code, "\r\n"); at >= 0 {
		return Line{}, fmt.Errorf("line end at character %d", at)
	}
	var space [128]byte // 17 points; what is longer is allocated
	raw, err := encoding.AppendDecode(space[:0], []byte(code))
	if err != nil {
		return Line{}, err
	}
	return decode(raw)
}

func decode(code []byte) (Line, error) {
	if err := checkStatus(code); err != nil {
		return Line{}, err
	}
	points, offsets, err := layout(len(code))
	if err != nil {
		return Line{}, err
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
		return errors.New("it is empty")
	}
	switch status := code[0]; {
	case status&versionMask != version:
		return fmt.Errorf("byte 0: version is %d, has to be %d", status&versionMask, version)
	case status&locationMask != 0:
		return fmt.Errorf("byte 0: status 0x%02x says area or point, has to be a line", status)
	case status&attributesFlag == 0:
		return fmt.Errorf("byte 0: status 0x%02x says no attributes, a line has them", status)
	case status&reservedMask != 0:
		return fmt.Errorf("byte 0: status 0x%02x has the reserved bit set", status)
	}
	return nil
}

// layout says what a line of so many bytes holds.
func layout(size int) (points, offsets int, err error) {
	if size < minSize {
		return 0, 0, fmt.Errorf("byte %d: it ends, a line has at least %d bytes", size, minSize)
	}
	inner, rest := (size-minSize)/innerSize, (size-minSize)%innerSize
	if rest > maxOffsets {
		return 0, 0, fmt.Errorf("byte %d: it ends, the %d bytes behind %d points are neither offsets nor a point",
			size, rest, inner+2)
	}
	return inner + 2, rest, nil
}

// reader walks along a code whose size has been checked.
type reader struct {
	code     []byte
	at       int
	lon, lat float64 // of the point before
}

func (r *reader) point(p *Point, first, last bool) error {
	if first {
		r.lon, r.lat = r.absolute(), r.absolute()
	} else {
		r.lon, r.lat = r.lon+r.relative(), r.lat+r.relative()
	}
	if err := onEarth(r.lon, r.lat); err != nil {
		return err
	}
	p.Lon, p.Lat = r.lon, r.lat

	class := r.byte()
	if class&classReserved != 0 {
		return fmt.Errorf("attributes 0x%02x at byte %d have a reserved bit set", class, r.at-1)
	}
	p.FRC = FunctionalRoadClass(class >> classShift)
	p.FOW = FormOfWay(class & threeBits)

	path := r.byte()
	p.Bearing = (float64(path&bearingMask) + 0.5) * bearingStep
	if !last {
		p.LowestFRC = FunctionalRoadClass(path >> pathShift)
		p.Distance = int((float64(r.byte())+0.5)*distanceStep + 0.5)
	}
	return nil
}

// offsets reads the n bytes behind the last point; the byte before them says
// which they are.
func (r *reader) offsets(line *Line, n int) error {
	end := r.code[r.at-1]
	if end&endReserved != 0 {
		return fmt.Errorf("attributes 0x%02x have the reserved bit set", end)
	}
	if announced := bits.OnesCount8(end & (positiveFlag | negativeFlag)); announced != n {
		return fmt.Errorf("attributes 0x%02x announce offsets: %d, bytes that follow: %d", end, announced, n)
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
	return leaveSomething(len(line.Points), positive, negative)
}

func (r *reader) byte() byte {
	b := r.code[r.at]
	r.at++
	return b
}

func (r *reader) absolute() float64 {
	b := r.code[r.at : r.at+3]
	r.at += 3
	return degrees(int32(b[0])<<24>>8 | int32(b[1])<<8 | int32(b[2])) // sign of the first byte
}

func (r *reader) relative() float64 {
	v := int16(binary.BigEndian.Uint16(r.code[r.at:]))
	r.at += 2
	return float64(v) / relativeParts
}
