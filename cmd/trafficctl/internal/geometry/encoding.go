package geometry

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twpayne/go-geom"
	"github.com/twpayne/go-geom/encoding/geojson"

	"trafficd/schemas/geo"
)

// Encoding of geometries in a file.
type Encoding string

// The encodings. WKT, hex and base64 have one geometry per line, WKB one per file.
const (
	WKT     Encoding = "wkt"
	WKB     Encoding = "wkb"
	Hex     Encoding = "hex"    // of WKB
	Base64  Encoding = "base64" // of WKB
	KML     Encoding = "kml"
	GeoJSON Encoding = "geojson" // output only
)

var (
	readable = []Encoding{WKT, WKB, Hex, Base64, KML}
	writable = append(slices.Clone(readable), GeoJSON)
)

// checkEncodings returns an error for an unknown encoding.
func checkEncodings(from, to Encoding) error {
	if !slices.Contains(readable, from) {
		return fmt.Errorf("--from %q must be one of %v", from, readable)
	}
	if !slices.Contains(writable, to) {
		return fmt.Errorf("--to %q must be one of %v", to, writable)
	}
	return nil
}

// parse reads a record.
func (e Encoding) parse(limits geo.Limits, record []byte) (geom.T, error) {
	switch e {
	case WKT:
		return limits.ParseWKT(string(record), geo.Any)
	case KML:
		return limits.ParseKML(geo.Any, string(record))
	case Hex:
		data, err := hex.AppendDecode(nil, hexDigits(record))
		if err != nil {
			return nil, fmt.Errorf("invalid hex: %w", err)
		}
		return limits.ParseWKB(data, geo.Any)
	case Base64:
		data, err := base64.StdEncoding.AppendDecode(nil, record)
		if err != nil {
			return nil, fmt.Errorf("invalid base64: %w", err)
		}
		return limits.ParseWKB(data, geo.Any)
	}
	return limits.ParseWKB(record, geo.Any)
}

// hexDigits removes the prefixes of PostgreSQL and others.
func hexDigits(record []byte) []byte {
	for _, prefix := range []string{`\x`, "0x", "0X"} {
		record = bytes.TrimPrefix(record, []byte(prefix))
	}
	return record
}

// appendRecord appends a geometry without separators.
func (e Encoding) appendRecord(dst []byte, g geom.T) ([]byte, error) {
	switch e {
	case WKT:
		return geo.AppendWKT(dst, g), nil
	case KML:
		return geo.AppendPlacemark(dst, g), nil
	case Hex:
		return hex.AppendEncode(dst, geo.AppendWKB(nil, g, binary.LittleEndian)), nil
	case Base64:
		return base64.StdEncoding.AppendEncode(dst, geo.AppendWKB(nil, g, binary.LittleEndian)), nil
	case GeoJSON:
		return appendFeature(dst, g)
	}
	return geo.AppendWKB(dst, g, binary.LittleEndian), nil
}

func appendFeature(dst []byte, g geom.T) ([]byte, error) {
	g, err := forGeoJSON(g)
	if err != nil {
		return dst, err
	}
	text, err := json.Marshal(&geojson.Feature{Geometry: g, Properties: map[string]any{}})
	if err != nil {
		return dst, fmt.Errorf("cannot write GeoJSON: %w", err)
	}
	return append(dst, text...), nil
}

// forGeoJSON turns linear rings, which GeoJSON lacks, into line strings.
func forGeoJSON(g geom.T) (geom.T, error) {
	switch g := g.(type) {
	case *geom.LinearRing:
		return geom.NewLineStringFlat(g.Layout(), g.FlatCoords()), nil
	case *geom.MultiPoint:
		if len(g.FlatCoords()) < g.NumPoints()*g.Stride() {
			return nil, errors.New("cannot write GeoJSON: it does not support empty points in a MultiPoint")
		}
	case *geom.GeometryCollection:
		members := geom.NewGeometryCollection()
		for _, member := range g.Geoms() {
			member, err := forGeoJSON(member)
			if err != nil {
				return nil, err
			}
			members.MustPush(member)
		}
		return members, nil
	}
	return g, nil
}

// frame is the text around the records of a file.
type frame struct{ head, between, tail string }

func (e Encoding) frame() frame {
	switch e {
	case WKB:
		return frame{}
	case KML:
		return frame{
			`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<kml xmlns="http://www.opengis.net/kml/2.2"><Document>` + "\n",
			"\n", "\n</Document></kml>\n",
		}
	case GeoJSON:
		return frame{`{"type":"FeatureCollection","features":[` + "\n", ",\n", "\n]}\n"}
	}
	return frame{"", "\n", "\n"}
}

// OfFile returns the encoding for a file's extension.
func OfFile(name string) (Encoding, bool) {
	name = strings.ToLower(name)
	for _, e := range writable {
		if strings.HasSuffix(name, "."+string(e)) {
			return e, true
		}
	}
	return GeoJSON, strings.HasSuffix(name, ".json")
}
