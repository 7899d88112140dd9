package follow

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/route"
)

// liveSpeed is a record as Valhalla's sources describe it: fields from the lowest bit upwards.
type liveSpeed struct {
	overall, speed1, speed2, speed3, breakpoint1, breakpoint2, congestion1, congestion2, congestion3, incidents, spare uint64
}

func decodeRecord(value uint64) liveSpeed {
	take := func(bits int) uint64 {
		field := value & (1<<bits - 1)
		value >>= bits
		return field
	}
	return liveSpeed{take(7), take(7), take(7), take(7), take(8), take(8), take(6), take(6), take(6), take(1), take(1)}
}

func TestRecord(t *testing.T) {
	const none = 127
	speeds := []speed{{kmh: 50}, {kmh: 30, free: 60}, {closed: true}, {}, {kmh: 0.4 + minSpeed}, {kmh: 300}, {kmh: 10, free: 10}}
	f := func(want liveSpeed, parts ...part) {
		t.Helper()
		require.Equal(t, want, decodeRecord(record(parts, speeds)))
	}
	f(liveSpeed{})
	f(liveSpeed{}, part{3, 0, 1})
	f(liveSpeed{overall: 25, speed1: 25, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255}, part{0, 0, 1})
	f(liveSpeed{overall: 25, speed1: 25, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255}, part{0, 0.001, 0.999})
	f(liveSpeed{overall: 15, speed1: 15, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255, congestion1: 32}, part{1, 0, 1})
	f(liveSpeed{overall: 5, speed1: 5, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255, congestion1: 1}, part{6, 0, 1})
	f(liveSpeed{overall: 0, speed1: 0, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255, congestion1: 63}, part{2, 0, 1})
	f(liveSpeed{overall: 1, speed1: 1, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255}, part{4, 0, 1})
	f(liveSpeed{overall: 126, speed1: 126, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255}, part{5, 0, 1})
	// An offset cuts the edge.
	f(liveSpeed{overall: 25, speed1: none, speed2: 25, speed3: none, breakpoint1: 51, breakpoint2: 255}, part{0, 0.2, 1})
	f(liveSpeed{overall: 25, speed1: none, speed2: 25, speed3: none, breakpoint1: 51, breakpoint2: 204}, part{0, 0.2, 0.8})
	// Two streets meet in the edge; the travel times add up. The whole edge is closed if a part is.
	f(liveSpeed{overall: 19, speed1: 25, speed2: 15, speed3: none, breakpoint1: 128, breakpoint2: 255, congestion2: 32}, part{0, 0, 0.5}, part{1, 0.5, 1})
	f(liveSpeed{overall: 0, speed1: 25, speed2: 0, speed3: none, breakpoint1: 128, breakpoint2: 255, congestion2: 63}, part{2, 0.5, 1}, part{0, 0, 0.5})
	f(liveSpeed{overall: 25, speed1: 25, speed2: none, speed3: none, breakpoint1: 128, breakpoint2: 255}, part{3, 0.5, 1}, part{0, 0, 0.5})
	// More than three: the shortest share a subsegment.
	f(
		liveSpeed{overall: 8, speed1: 25, speed2: 10, speed3: 5, breakpoint1: 115, breakpoint2: 140, congestion3: 1},
		part{0, 0, 0.45}, part{6, 0.45, 0.5}, part{5, 0.5, 0.55}, part{6, 0.55, 1},
	)
}

// somewhere returns matches of streets of three nodes each, some metres apart, of way 100 + i.
func somewhere(streets int) (matches []route.Match) {
	for i := range int64(streets) {
		lat := 56 + float64(i)*1e-5
		matches = append(matches, route.Match{
			Street: int32(i + 1), FromNode: 1, State: route.Matched, Ways: []int64{100 + i, 100 + i}, Nodes: []int64{10 * i, 10*i + 1, 10*i + 2},
			Coordinates: [][2]float64{{10, lat}, {10.001, lat}, {10.003, lat}},
		})
	}
	return matches
}

func TestOSRM(t *testing.T) {
	path := filepath.Join(t.TempDir(), "speeds.csv")
	matches := somewhere(4)
	matches[2].Nodes[0] = 2 // its first pair begins where street 1 ends; its second pair has an offset
	matches[3].NegativeOffset = 40
	matches[3].Nodes, matches[3].PositiveOffset = []int64{0, 1, 2}, 40 // shares the pairs of street 1
	matches, streets := Usable(matches)
	o, err := OSRM(path, matches, streets)
	require.NoError(t, err)
	require.True(t, o.Updated().IsZero())
	now := time.Now()
	read := func() [][]string {
		t.Helper()
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		require.NoError(t, err)
		return rows
	}
	n, err := o.Write([]speed{{kmh: 50}, {closed: true}, {kmh: 0.2}, {}}, nil, now)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Equal(t, [][]string{
		{"0", "1", "50.0"}, {"1", "2", "50.0"}, {"10", "11", "0"}, {"11", "12", "0"}, {"2", "21", "1.0"}, {"21", "22", "1.0"},
	}, read())
	require.Equal(t, now, o.Updated())

	old, err := os.Open(path) // a reader sees the whole old file
	require.NoError(t, err)
	defer old.Close()
	// Street 4 covers less than half of the first pair, and street 1 has no speed.
	_, err = o.Write([]speed{{}, {}, {}, {kmh: 20}}, []int32{0, 1, 2, 3}, now)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"1", "2", "20.0"}}, read())
	_, err = o.Write([]speed{{kmh: 40}, {}, {}, {kmh: 20}}, []int32{0}, now)
	require.NoError(t, err)
	rows := read()
	require.Len(t, rows, 2)
	kmh, err := strconv.ParseFloat(rows[1][2], 64)
	require.NoError(t, err)
	require.InDelta(t, 28.5, kmh, 1) // the time of 1.0 at 40 km/h and 0.7 at 20 km/h
	text, err := io.ReadAll(old)
	require.NoError(t, err)
	require.Contains(t, string(text), "21,22,1.0\n")

	again, err := OSRM(path, matches, streets)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), again.Updated(), time.Minute)
	_, err = again.Write(make([]speed, 4), nil, now)
	require.NoError(t, err)
	require.Empty(t, read())
	_, err = OSRM(t.TempDir(), matches, streets)
	require.ErrorContains(t, err, "cannot read the segment speed file --output")
}

// tileOf returns a tile with two directed edges for each match, forwards and backwards, in
// Valhalla's layout.
func tileOf(id uint64, matches []route.Match) []byte {
	var infos []byte
	edges := make([]byte, 0, len(matches)*2*tileEdgeSize)
	for _, m := range matches {
		offset := len(infos)
		var shape []byte
		var last point
		for _, c := range m.Coordinates {
			p := pointOf(c)
			shape = binary.AppendVarint(binary.AppendVarint(shape, int64(p[1]-last[1])), int64(p[0]-last[0]))
			last = p
		}
		way := uint64(m.Ways[0])
		infos = binary.LittleEndian.AppendUint32(infos, uint32(way))
		infos = binary.LittleEndian.AppendUint32(infos, uint32(way>>32)<<24)
		infos = binary.LittleEndian.AppendUint32(infos, 2|uint32(len(shape))<<4) // two names
		infos = append(append(infos, make([]byte, 8)...), shape...)
		for _, forward := range []uint64{1, 0} {
			e := make([]byte, tileEdgeSize)
			binary.LittleEndian.PutUint64(e, forward<<61)
			binary.LittleEndian.PutUint64(e[8:], uint64(offset))
			edges = append(edges, e...)
		}
	}
	const nodes, transitions = 3, 2
	first := tileHeaderSize + nodes*tileNodeSize + transitions*tileTransitionSize
	b := make([]byte, first, first+len(edges)+len(infos))
	binary.LittleEndian.PutUint64(b, id|1<<62)
	binary.LittleEndian.PutUint64(b[40:], nodes|uint64(2*len(matches))<<21)
	binary.LittleEndian.PutUint32(b[48:], transitions)
	binary.LittleEndian.PutUint32(b[104:], uint32(first+len(edges)))
	binary.LittleEndian.PutUint32(b[108:], uint32(first+len(edges)+len(infos)))
	return append(append(b, edges...), infos...)
}

// writeTiles writes an archive of tiles.
func writeTiles(t testing.TB, matches ...[]route.Match) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiles.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	archive := tar.NewWriter(f)
	names := []string{"2/000/864/819.gph", "1/054/204.gph"}
	for i, m := range matches {
		id, ok := tileID(names[i])
		require.True(t, ok)
		b := tileOf(id, m)
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: names[i], Mode: 0o644, Size: int64(len(b))}))
		_, err = archive.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(archive.Close(), f.Close()))
	return path
}

// traffic is a tile of live speeds.
type traffic struct {
	Tile, Updated                  uint64
	Edges, Version, Spare2, Spare3 uint32
}

// readTraffic reads live speeds with nothing but the description of the format.
func readTraffic(t testing.TB, path string) (headers []traffic, records [][]uint64) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for archive := tar.NewReader(f); ; {
		_, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, records
		}
		require.NoError(t, err)
		var h traffic
		require.NoError(t, binary.Read(archive, binary.LittleEndian, &h))
		list := make([]uint64, h.Edges)
		require.NoError(t, binary.Read(archive, binary.LittleEndian, list))
		rest, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.Empty(t, rest)
		headers, records = append(headers, h), append(records, list)
	}
}

func TestValhalla(t *testing.T) {
	all := somewhere(5)
	tiles := writeTiles(t, all[:3], all[3:])
	back := all[1] // against the direction of the shape, in the second half only
	back.FromNode, back.Nodes, back.Coordinates = 2, []int64{12, 11}, [][2]float64{all[1].Coordinates[2], all[1].Coordinates[1]}
	back.Ways, back.PositiveOffset = back.Ways[:1], route.Distance(back.Coordinates[0], back.Coordinates[1])/2
	matches, streets := Usable(append(all[:4:4], back))
	path := filepath.Join(t.TempDir(), "traffic.tar")
	var log bytes.Buffer
	line := func(format string, _ ...any) { log.WriteString(format + "\n") }
	v, err := Valhalla(path, tiles, matches, streets, line)
	require.NoError(t, err)
	require.Contains(t, log.String(), "restart Valhalla")
	require.True(t, v.Updated().IsZero())
	before, err := os.Stat(path)
	require.NoError(t, err)

	now := time.Unix(1_800_000_000, 0)
	n, err := v.Write([]speed{{kmh: 50}, {closed: true}, {}, {kmh: 20}, {kmh: 30}}, nil, now)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	headers, records := readTraffic(t, path)
	require.Equal(t, []traffic{{Tile: 864819<<3 | 2, Updated: 1_800_000_000, Edges: 6, Version: 3}, {54204<<3 | 1, 1_800_000_000, 4, 3, 0, 0}}, headers)
	decoded := func(tile int) (list []liveSpeed) {
		for _, r := range records[tile] {
			list = append(list, decodeRecord(r))
		}
		return list
	}
	const none = 127
	whole := func(kmh uint64) liveSpeed {
		return liveSpeed{overall: kmh / 2, speed1: kmh / 2, speed2: none, speed3: none, breakpoint1: 255, breakpoint2: 255}
	}
	closed := whole(0)
	closed.congestion1 = 63
	// The edge is 3/1000 of a degree long; the street has from 1/1000 to 2/1000 of it, backwards.
	half := liveSpeed{overall: 15, speed1: none, speed2: 15, speed3: none, breakpoint1: 85, breakpoint2: 170}
	require.Equal(t, []liveSpeed{whole(50), {}, closed, half, {}, {}}, decoded(0))
	require.Equal(t, []liveSpeed{whole(20), {}, {}, {}}, decoded(1))

	n, err = v.Write([]speed{{kmh: 60}, {closed: true}, {}, {}, {kmh: 30}}, []int32{0, 3}, now.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	headers, records = readTraffic(t, path)
	require.Equal(t, []liveSpeed{whole(60), {}, closed, half, {}, {}}, decoded(0))
	require.Equal(t, make([]liveSpeed, 4), decoded(1))
	require.EqualValues(t, 1_800_000_060, headers[1].Updated)
	require.NoError(t, v.Close())
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "Valhalla has mapped the file")

	// With other matches, the file is used again, and the speeds of other streets are removed.
	matches, streets = Usable(all[4:])
	v, err = Valhalla(path, tiles, matches, streets, line)
	require.NoError(t, err)
	require.Equal(t, now.Add(time.Minute), v.Updated())
	n, err = v.Write([]speed{{kmh: 100}}, nil, now)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	_, records = readTraffic(t, path)
	require.Equal(t, make([]liveSpeed, 6), decoded(0))
	require.Equal(t, []liveSpeed{{}, {}, whole(100), {}}, decoded(1))
	require.NoError(t, v.Close())

	// Nodes that are not in the tiles are reported, and other tiles are refused.
	moved := append(somewhere(4), somewhere(5)[4])
	moved[4].Coordinates[1][1] += 1e-4
	matches, streets = Usable(moved)
	v, err = Valhalla(path, tiles, matches, streets, line)
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.Contains(t, log.String(), "streets have nodes that are not in")
	f := func(tiles, want string) {
		t.Helper()
		_, err := Valhalla(path, tiles, matches, streets, line)
		require.ErrorContains(t, err, want)
	}
	f(writeTiles(t, all[:2], all[2:]), "it belongs to other tiles than --tiles")
	f(writeTiles(t), "it contains no tiles")
	f(path, "unexpected layout")
	f(filepath.Join(t.TempDir(), "none"), "no such file")
	matches[0].Ways = []int64{1, 1}
	_, err = Valhalla(path, tiles, matches[:1], streets, line)
	require.ErrorContains(t, err, "no street is in the tiles")
}

// TestTruncatedTiles checks that no cut of a tile panics.
func TestTruncatedTiles(t *testing.T) {
	id, _ := tileID("2/000/864/819.gph")
	whole := tileOf(id, somewhere(3))
	wanted := map[int64]bool{100: true, 101: true, 102: true}
	segments := map[int64][]segment{}
	edges, err := readTile(whole, id, wanted, segments)
	require.NoError(t, err)
	require.Equal(t, 6, edges)
	require.Len(t, segments[101], 4)
	for n := range whole {
		_, err := readTile(whole[:n], id, wanted, map[int64][]segment{})
		require.Error(t, err, n)
	}
}

// BenchmarkExport measures the first export of 100,000 streets, BenchmarkUpdate a change of 1 %.
func BenchmarkExport(b *testing.B) { benchmark(b, true) }

func BenchmarkUpdate(b *testing.B) { benchmark(b, false) }

// benchmark has streets of five pairs of nodes, each street an edge.
func benchmark(b *testing.B, first bool) {
	matches := somewhere(100_000)
	for i := range matches {
		m := &matches[i]
		for n := int64(3); n < 6; n++ {
			m.Ways, m.Nodes = append(m.Ways, m.Ways[0]), append(m.Nodes, 10*int64(i)+n)
			m.Coordinates = append(m.Coordinates, [2]float64{10 + float64(n)/500, m.Coordinates[0][1]})
		}
	}
	tiles := writeTiles(b, matches)
	matches, streets := Usable(matches)
	speeds := make([]speed, len(streets))
	for i := range speeds {
		speeds[i] = speed{kmh: float32(20 + i%50)}
	}
	changed := make([]int32, len(speeds)/100)
	for i := range changed {
		changed[i] = int32(100 * i)
	}
	f := func(name string, open func(dir string) (Target, error)) {
		export := func(b *testing.B) Target {
			target, err := open(b.TempDir())
			require.NoError(b, err)
			_, err = target.Write(speeds, nil, time.Now())
			require.NoError(b, err)
			return target
		}
		b.Run(name, func(b *testing.B) {
			if first {
				for b.Loop() {
					require.NoError(b, export(b).Close())
				}
				return
			}
			target := export(b)
			for b.Loop() {
				for _, street := range changed {
					speeds[street].kmh++
				}
				_, err := target.Write(speeds, changed, time.Now())
				require.NoError(b, err)
			}
			require.NoError(b, target.Close())
		})
	}
	f("osrm", func(dir string) (Target, error) { return OSRM(filepath.Join(dir, "speeds.csv"), matches, streets) })
	f("valhalla", func(dir string) (Target, error) {
		return Valhalla(filepath.Join(dir, "traffic.tar"), tiles, matches, streets, func(string, ...any) {})
	})
}
