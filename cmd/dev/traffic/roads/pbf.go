// Package roads makes maps of made-up towns in the format of OpenStreetMap, with roads that are
// hard to tell apart: dual carriageways, roundabouts, service roads beside main roads, bridges.
package roads

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Map is a road map.
type Map struct {
	Nodes []Node // by ID in ascending order
	Ways  []Way
}

// Node is a point of a way, in degrees.
type Node struct {
	ID       int64
	Lon, Lat float64
}

// Way is a road.
type Way struct {
	ID    int64
	Nodes []int64
	Tags  [][2]string
}

const blockSize = 8000 // elements; what most programs write

// WritePBF writes the map as a PBF file of OpenStreetMap.
func (m *Map) WritePBF(w io.Writer) error {
	var header []byte
	for _, feature := range []string{"OsmSchema-V0.6", "DenseNodes"} {
		header = appendBytes(header, 4, []byte(feature))
	}
	if err := writeBlob(w, "OSMHeader", header); err != nil {
		return err
	}
	for i := 0; i < len(m.Nodes); i += blockSize {
		if err := writeBlob(w, "OSMData", block(nil, denseNodes(m.Nodes[i:min(i+blockSize, len(m.Nodes))]))); err != nil {
			return err
		}
	}
	for i := 0; i < len(m.Ways); i += blockSize {
		texts := map[string]uint64{}
		var order []string
		var group []byte
		for _, way := range m.Ways[i:min(i+blockSize, len(m.Ways))] {
			var keys, values, refs []byte
			for _, tag := range way.Tags {
				for k, text := range tag {
					if _, ok := texts[text]; !ok {
						order = append(order, text)
						texts[text] = uint64(len(order)) // 0 is reserved
					}
					if k == 0 {
						keys = protowire.AppendVarint(keys, texts[text])
					} else {
						values = protowire.AppendVarint(values, texts[text])
					}
				}
			}
			before := int64(0)
			for _, id := range way.Nodes {
				refs = protowire.AppendVarint(refs, protowire.EncodeZigZag(id-before))
				before = id
			}
			text := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(way.ID))
			text = appendBytes(appendBytes(appendBytes(text, 2, keys), 3, values), 8, refs)
			group = appendBytes(group, 3, text)
		}
		if err := writeBlob(w, "OSMData", block(order, group)); err != nil {
			return err
		}
	}
	return nil
}

// denseNodes returns a group of nodes.
func denseNodes(nodes []Node) []byte {
	var ids, lats, lons []byte
	var before [3]int64
	for _, n := range nodes {
		now := [3]int64{n.ID, int64(math.Round(n.Lat * 1e7)), int64(math.Round(n.Lon * 1e7))}
		ids = protowire.AppendVarint(ids, protowire.EncodeZigZag(now[0]-before[0]))
		lats = protowire.AppendVarint(lats, protowire.EncodeZigZag(now[1]-before[1]))
		lons = protowire.AppendVarint(lons, protowire.EncodeZigZag(now[2]-before[2]))
		before = now
	}
	return appendBytes(nil, 2, appendBytes(appendBytes(appendBytes(nil, 1, ids), 8, lats), 9, lons))
}

// block returns a primitive block with texts and a group.
func block(texts []string, group []byte) []byte {
	table := appendBytes(nil, 1, nil)
	for _, text := range texts {
		table = appendBytes(table, 1, []byte(text))
	}
	return appendBytes(appendBytes(nil, 1, table), 2, group)
}

func writeBlob(w io.Writer, kind string, content []byte) error {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(content) // a buffer does not fail
	_ = z.Close()
	blob := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), uint64(len(content)))
	blob = appendBytes(blob, 3, packed.Bytes())
	header := protowire.AppendTag(appendBytes(nil, 1, []byte(kind)), 3, protowire.VarintType)
	header = protowire.AppendVarint(header, uint64(len(blob)))
	all := append(binary.BigEndian.AppendUint32(nil, uint32(len(header))), header...)
	_, err := w.Write(append(all, blob...))
	return err
}

func appendBytes(message []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, field, protowire.BytesType), content)
}
