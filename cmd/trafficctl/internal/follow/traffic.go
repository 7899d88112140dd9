package follow

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trafficd/cmd/trafficctl/internal/route"
	"trafficd/pipeline/lib/replace"
)

// Layout of Valhalla's file of live speeds: an archive with a file for each tile, which has a
// header (TrafficTileHeader) and a record (TrafficSpeed) for each directed edge of the tile.
const (
	trafficHeaderSize = 32 // tile, time of the update in seconds since 1970, number of edges, version
	trafficUpdated    = 8
	trafficEdges      = 16
	trafficVersion    = 20
	recordSize        = 8

	version = 3
)

// Values of a record.
const (
	unknownSpeed     = 127 // speeds have 7 bits, in steps of 2 km/h
	wholeEdge        = 255 // ends of subsegments have 8 bits, as fractions of the edge
	closedCongestion = 63  // congestion has 6 bits, 0: unknown, 1: none
)

// valhalla updates the records in the file while Valhalla reads them: both have mapped the file,
// and a record is stored at once.
type valhalla struct {
	image []byte
	tiles map[uint64]int // offsets of the tiles' headers
	cover *cover[edge]
}

// Valhalla returns a target that updates the records in the file at path in place. It creates the
// file if it does not exist, for the tiles in an archive. It reports with log what operators must
// know.
func Valhalla(path, tilesPath string, matches []route.Match, streets Streets, log func(string, ...any)) (Target, error) {
	tiles, edges, err := coverTiles(tilesPath, matches, streets, log)
	if err != nil {
		return nil, err
	}
	v := &valhalla{tiles: make(map[uint64]int), cover: edges}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = replace.File(path, 0o644, func(w io.Writer) error { return writeEmpty(w, tiles) })
		log("created %s; restart Valhalla, which opens mjolnir.traffic_extract when it starts", path)
	}
	if err == nil {
		err = v.open(path, tiles)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the live speeds --output %s: %w", path, err)
	}
	return v, nil
}

// writeEmpty writes an archive without speeds.
func writeEmpty(w io.Writer, tiles []tile) error {
	archive := tar.NewWriter(w)
	for _, t := range tiles {
		b := make([]byte, trafficHeaderSize+t.edges*recordSize)
		binary.LittleEndian.PutUint64(b, t.id)
		binary.LittleEndian.PutUint32(b[trafficEdges:], uint32(t.edges))
		binary.LittleEndian.PutUint32(b[trafficVersion:], version)
		err := archive.WriteHeader(&tar.Header{Name: t.name, Mode: 0o644, Size: int64(len(b)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR})
		if err == nil {
			_, err = archive.Write(b)
		}
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

// open maps the file and checks that it belongs to the tiles.
func (v *valhalla) open(path string, tiles []tile) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for archive := tar.NewReader(f); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if id, ok := tileID(entry.Name); ok {
			offset, err := f.Seek(0, io.SeekCurrent) // the archive is read without a buffer
			if err != nil {
				return err
			}
			v.tiles[id] = int(offset)
		}
	}
	if v.image, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	for _, t := range tiles {
		offset, ok := v.tiles[t.id]
		if !ok || offset+trafficHeaderSize+t.edges*recordSize > len(v.image) || binary.LittleEndian.Uint64(v.image[offset:]) != t.id ||
			binary.LittleEndian.Uint32(v.image[offset+trafficEdges:]) != uint32(t.edges) {
			return fmt.Errorf("it belongs to other tiles than --tiles (tile %s); remove it, run this command again and restart Valhalla", t.name)
		}
		if got := binary.LittleEndian.Uint32(v.image[offset+trafficVersion:]); got != version {
			return fmt.Errorf("it has version %d of the format, must have %d; remove it, run this command again and restart Valhalla", got, version)
		}
	}
	return nil
}

func (v *valhalla) Close() error { return unix.Munmap(v.image) }

// word returns the 8 bytes at an offset. They are aligned: the image starts a page, and files in an
// archive start at multiples of 512 bytes.
func (v *valhalla) word(offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&v.image[offset : offset+8][0]))
}

func (v *valhalla) Updated() time.Time {
	var latest uint64
	for _, offset := range v.tiles {
		latest = max(latest, atomic.LoadUint64(v.word(offset+trafficUpdated)))
	}
	if latest == 0 {
		return time.Time{}
	}
	return time.Unix(int64(latest), 0)
}

func (v *valhalla) Write(speeds []speed, changed []int32, now time.Time) (written int, err error) {
	store := func(e edge, value uint64) {
		word := v.word(v.tiles[e.tile] + trafficHeaderSize + int(e.index)*recordSize)
		if atomic.LoadUint64(word) != value {
			atomic.StoreUint64(word, value)
			written++
		}
	}
	for _, street := range changed {
		for _, unit := range v.cover.units[street] {
			store(v.cover.keys[unit], record(v.cover.parts[unit], speeds))
		}
	}
	for id, offset := range v.tiles {
		if changed == nil { // all edges, also those that another file of matches has covered
			for i := range binary.LittleEndian.Uint32(v.image[offset+trafficEdges:]) {
				e, value := edge{id, int32(i)}, uint64(0)
				if unit, ok := v.cover.index[e]; ok {
					value = record(v.cover.parts[unit], speeds)
				}
				store(e, value)
			}
		}
		atomic.StoreUint64(v.word(offset+trafficUpdated), uint64(now.Unix()))
	}
	return written, nil
}

// record returns the record of an edge: its speed, and the speeds of up to three subsegments, which
// end where streets do. It is 0 if nothing is known.
func record(parts []part, speeds []speed) uint64 {
	overall, covered := mean(parts, speeds, 0, 1)
	if covered == 0 {
		return 0
	}
	value, from, ends := encodeSpeed(overall), float32(0), endsOf(parts, speeds)
	for i, to := range ends {
		s, _ := mean(parts, speeds, from, to)
		value |= encodeSpeed(s)<<(7*(i+1)) | encodeCongestion(s)<<(44+6*i)
		if i < len(ends)-1 {
			value |= uint64(to*wholeEdge+0.5) << (28 + 8*i)
		}
		from = to
	}
	return value
}

func encodeSpeed(s speed) uint64 {
	switch {
	case s.closed:
		return 0
	case s.kmh == 0:
		return unknownSpeed
	}
	return uint64(min(max(s.kmh/2+0.5, 1), unknownSpeed-1))
}

func encodeCongestion(s speed) uint64 {
	switch {
	case s.closed:
		return closedCongestion
	case s.free == 0 || s.kmh == 0:
		return 0
	}
	const none, most = 1, closedCongestion - 1
	return none + uint64((most-none)*max(1-s.kmh/s.free, 0)+0.5)
}

// endsOf returns where the three subsegments of an edge end; unused ones are empty. If parts have
// more ends, the shortest neighbours share a subsegment.
func endsOf(parts []part, speeds []speed) (ends [3]float32) {
	list := []float32{0, 1}
	for _, p := range parts {
		if speeds[p.street].known() {
			list = append(list, p.from, p.to)
		}
	}
	slices.Sort(list)
	list = slices.CompactFunc(list, func(a, b float32) bool { return max(a, b)-min(a, b) < 1./wholeEdge })
	list[len(list)-1] = 1 // it may be the end of a part that is nearly 1
	for len(list)-1 > len(ends) {
		best := 1
		for i := 2; i < len(list)-1; i++ {
			if list[i+1]-list[i-1] < list[best+1]-list[best-1] {
				best = i
			}
		}
		list = slices.Delete(list, best, best+1)
	}
	n := copy(ends[:], list[1:])
	for i := n; i < len(ends); i++ {
		ends[i] = 1
	}
	return ends
}
