package follow

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"trafficd/cmd/trafficctl/internal/route"
)

// Layout of Valhalla's routing tiles, which has been the same in all its versions 3. Names are
// those of its sources.
const (
	tileHeaderSize     = 272 // GraphTileHeader
	tileNodeSize       = 32  // NodeInfo
	tileTransitionSize = 8   // NodeTransition
	tileEdgeSize       = 48  // DirectedEdge
	tileInfoSize       = 12  // EdgeInfo without its names and shape

	tileSuffix = ".gph"
)

// edge is the position of a directed edge: the tile's number with its level, and the index in it.
type edge struct {
	tile  uint64
	index int32
}

// point is a position in Valhalla's unit, 1e-6 degrees: longitude, latitude.
type point [2]int32

// near reports whether a and b are the same node. Rounding may differ.
func (a point) near(b point) bool {
	d := func(a, b int32) bool { return a-b <= 1 && b-a <= 1 }
	return d(a[0], b[0]) && d(a[1], b[1])
}

// segment is the part of an edge between two points of its shape, in the direction of travel.
type segment struct {
	a, b     point
	edge     edge
	from, to float32 // as fractions of the edge's length
}

// tile describes a tile of the extract.
type tile struct {
	name  string // in the archive
	id    uint64
	edges int
}

// coverTiles returns the tiles in an archive, and what streets cover of their edges. It reports
// with log what operators must know.
func coverTiles(path string, matches []route.Match, streets Streets, log func(string, ...any)) ([]tile, *cover[edge], error) {
	wanted := make(map[int64]bool)
	for i := range matches {
		for _, way := range matches[i].Ways {
			wanted[way] = true
		}
	}
	tiles, segments, err := readTiles(path, wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read --tiles %s: %w", path, err)
	}
	edges, missing := newCover[edge](len(streets)), 0
	for i := range matches {
		found := true
		m, street := &matches[i], streets.of(&matches[i])
		pairs(m, street, func(i int, p part) {
			a, b := pointOf(m.Coordinates[i]), pointOf(m.Coordinates[i+1])
			k := slices.IndexFunc(segments[m.Ways[i]], func(s segment) bool { return s.a.near(a) && s.b.near(b) })
			if k < 0 {
				found = false
				return
			}
			s := segments[m.Ways[i]][k]
			edges.add(s.edge, part{street, s.from + p.from*(s.to-s.from), s.from + p.to*(s.to-s.from)})
		})
		if !found {
			missing++
		}
	}
	if missing > 0 {
		log("%d of %d streets have nodes that are not in %s; match the streets with the map from which the tiles were built",
			missing, len(matches), path)
	}
	if len(edges.keys) == 0 && len(matches) > 0 {
		return nil, nil, errors.New("no street is in the tiles")
	}
	return tiles, edges, nil
}

func pointOf(lonLat [2]float64) point {
	return point{int32(math.Round(lonLat[0] * 1e6)), int32(math.Round(lonLat[1] * 1e6))}
}

// readTiles returns the tiles in an archive, and the segments of the ways for which wanted is true.
func readTiles(path string, wanted map[int64]bool) (tiles []tile, segments map[int64][]segment, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	segments = make(map[int64][]segment)
	var buffer []byte
	for archive := tar.NewReader(f); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		id, ok := tileID(entry.Name)
		if !ok {
			continue
		}
		buffer = append(buffer[:0], make([]byte, entry.Size)...)
		if _, err = io.ReadFull(archive, buffer); err != nil {
			return nil, nil, err
		}
		t := tile{name: entry.Name, id: id}
		if t.edges, err = readTile(buffer, id, wanted, segments); err != nil {
			return nil, nil, fmt.Errorf("tile %s: %w", entry.Name, err)
		}
		tiles = append(tiles, t)
	}
	if len(tiles) == 0 {
		return nil, nil, errors.New("it contains no tiles; build it with valhalla_build_extract")
	}
	return tiles, segments, nil
}

// tileID returns the number of the tile with a name such as 2/000/864/819.gph.
func tileID(name string) (uint64, bool) {
	text, ok := strings.CutSuffix(strings.TrimPrefix(name, "./"), tileSuffix)
	level, number, _ := strings.Cut(text, "/")
	l, err1 := strconv.ParseUint(level, 10, 3)
	n, err2 := strconv.ParseUint(strings.ReplaceAll(number, "/", ""), 10, 22)
	return l | n<<3, ok && err1 == nil && err2 == nil
}

var errTile = errors.New("unexpected layout: the tiles must be those of Valhalla 3, complete")

// readTile adds the segments of the wanted ways in a tile and returns the number of its edges.
func readTile(b []byte, id uint64, wanted map[int64]bool, segments map[int64][]segment) (edges int, err error) {
	if len(b) < tileHeaderSize || binary.LittleEndian.Uint64(b)&(1<<25-1) != id {
		return 0, errTile
	}
	counts := binary.LittleEndian.Uint64(b[40:])
	nodes, edges := int(counts&(1<<21-1)), int(counts>>21&(1<<21-1))
	transitions := int(binary.LittleEndian.Uint32(b[48:]) & (1<<22 - 1))
	first := tileHeaderSize + nodes*tileNodeSize + transitions*tileTransitionSize
	infos, end := int(binary.LittleEndian.Uint32(b[104:])), int(binary.LittleEndian.Uint32(b[108:]))
	if !(first+edges*tileEdgeSize <= infos && infos <= end && end <= len(b)) {
		return 0, errTile
	}
	for i := range edges {
		e := b[first+i*tileEdgeSize:][:tileEdgeSize]
		forward := e[7]&(1<<5) != 0                                    // bit 61 of the first word
		offset := int(binary.LittleEndian.Uint32(e[8:]) & (1<<25 - 1)) // of the edge's information
		shortcut := binary.LittleEndian.Uint32(e[44:])&(1<<28) != 0    // it repeats other edges
		if shortcut {
			continue
		}
		way, shape, err := readEdgeInfo(b[infos:end], offset)
		if err != nil {
			return 0, err
		}
		if !wanted[way] {
			continue
		}
		points, err := decodeShape(shape)
		if err != nil {
			return 0, err
		}
		segments[way] = appendSegments(segments[way], points, forward, edge{id, int32(i)})
	}
	return edges, nil
}

// readEdgeInfo returns the way and the encoded shape of the edge information at an offset.
func readEdgeInfo(b []byte, offset int) (way int64, shape []byte, err error) {
	if offset+tileInfoSize > len(b) {
		return 0, nil, errTile
	}
	b = b[offset:]
	sizes := binary.LittleEndian.Uint32(b[8:])
	names, size, more := int(sizes&0xf), int(sizes>>4&0xffff), int(sizes>>28&3)
	start := tileInfoSize + 4*names
	if start+size+more > len(b) {
		return 0, nil, errTile
	}
	way = int64(binary.LittleEndian.Uint32(b)) | int64(b[7])<<32 | int64(sizes>>20&0xff)<<40
	for i := range more {
		way |= int64(b[start+size+i]) << (48 + 8*i)
	}
	return way, b[start:][:size], nil
}

// decodeShape decodes latitudes and longitudes, each as a zigzag varint relative to the last one.
func decodeShape(b []byte) (points []point, err error) {
	var last [2]int64
	for len(b) > 0 {
		for i := range last {
			delta, n := binary.Varint(b)
			if n <= 0 {
				return nil, errTile
			}
			last[i], b = last[i]+delta, b[n:]
		}
		points = append(points, point{int32(last[1]), int32(last[0])})
	}
	return points, nil
}

func appendSegments(list []segment, points []point, forward bool, e edge) []segment {
	degrees := func(p point) [2]float64 { return [2]float64{float64(p[0]) / 1e6, float64(p[1]) / 1e6} }
	var total float64
	for i := 1; i < len(points); i++ {
		total += route.Distance(degrees(points[i-1]), degrees(points[i]))
	}
	done := 0.0
	for i := 1; i < len(points) && total > 0; i++ {
		a, b := points[i-1], points[i]
		from := done / total
		done += route.Distance(degrees(a), degrees(b))
		s := segment{a, b, e, float32(from), float32(done / total)}
		if !forward {
			s = segment{b, a, e, 1 - s.to, 1 - s.from}
		}
		list = append(list, s)
	}
	return list
}
