package layers

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// scatteredStreets returns n pairs of streets in order. The streets of a pair are the two
// directions between the same places. Most streets are in a few towns; some have no location.
func scatteredStreets(n int) (list []*street) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range int32(n) {
		town := float64(i % 7)
		p := placeOf(8+town/3+random.NormFloat64()*0.05, 55+town/5+random.NormFloat64()*0.03)
		for node := range int32(2) {
			s := &street{id: key{i, node}, located: i%20 > 0, place: p, position: p.hilbert() >> 2}
			if !s.located {
				s.position = 1<<63 | uint64(i)<<30
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, byPosition)
	return list
}

// TestCut checks the sizes of cells, and that few of them change when a street is removed.
func TestCut(t *testing.T) {
	streets := scatteredStreets(10_000)
	cells := cut(streets, maxCellStreets, nil)
	require.Equal(t, cells, cut(slices.Clone(streets), maxCellStreets, cells))
	var all []*street
	for _, b := range cells {
		require.LessOrEqual(t, len(b.streets), maxCellStreets)
		all = append(all, b.streets...)
	}
	require.Equal(t, streets, all)
	require.InDelta(t, maxCellStreets*2/3, len(streets)/len(cells), maxCellStreets/5)

	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		at := random.IntN(len(streets))
		fewer := cut(slices.Delete(slices.Clone(streets), at, at+1), maxCellStreets, cells)
		changed := 0
		for _, b := range fewer {
			if !slices.Contains(cells, b) {
				changed++
			}
		}
		require.LessOrEqual(t, changed, 5, "without street %d", at)
	}
}

// TestTilesConsistOfCells checks that at most one cell is only partly inside a tile.
func TestTilesConsistOfCells(t *testing.T) {
	streets := scatteredStreets(4000)
	cells := cut(streets, maxCellStreets, nil)
	for zoom := uint32(minZoom); zoom <= maxZoom; zoom++ {
		for i := 0; i < len(streets); i += 31 {
			s := streets[i]
			if !s.located {
				continue
			}
			tile := tileArea(zoom, s.place.x>>(32-zoom), s.place.y>>(32-zoom))
			crossing := 0
			for _, b := range cells {
				inside := 0
				for _, s := range b.streets {
					if s.located && tile.has(s.place) {
						inside++
					}
				}
				if inside > 0 {
					require.True(t, tile.overlaps(b.bounds))
					if !tile.contains(b.bounds) {
						crossing++
					}
				}
			}
			require.LessOrEqual(t, crossing, 1, "zoom %d", zoom)
		}
	}
}

// TestCutManyStreetsInOnePlace checks that the streets of one place stay in one cell.
func TestCutManyStreetsInOnePlace(t *testing.T) {
	var streets []*street
	for node := range int32(1000) {
		streets = append(streets, &street{id: key{7, node}, position: 5})
	}
	require.Len(t, cut(streets, maxCellStreets, nil), 1)
	require.Empty(t, cut(nil, maxCellStreets, nil))
}

// TestPlaces compares places with known tile numbers.
func TestPlaces(t *testing.T) {
	f := func(lon, lat float64, zoom, x, y uint32) {
		t.Helper()
		p := placeOf(lon, lat)
		require.Equal(t, []uint32{x, y}, []uint32{p.x >> (32 - zoom), p.y >> (32 - zoom)})
		require.True(t, tileArea(zoom, x, y).has(p))
	}
	f(12.5683, 55.6761, 14, 8763, 5128) // Copenhagen
	f(-0.1276, 51.5072, 10, 511, 340)   // London
	f(-180, 85.06, 14, 0, 0)
	f(180, -90, 14, 1<<14-1, 1<<14-1)
	f(0, 90, 6, 32, 0)
	require.Equal(t, area{0, 0, math.MaxUint32, math.MaxUint32}, area{0, 0, 0, 0}.extend(placeOf(180, -90)))
}

// TestHilbert checks that the places in a tile are consecutive on the curve, and that tiles that
// follow each other on the curve are neighbours on the map.
func TestHilbert(t *testing.T) {
	for zoom := 1; zoom <= 5; zoom++ {
		tiles := make([]place, 1<<(2*zoom)) // in the order of the curve
		for x := range uint32(1) << zoom {
			for y := range uint32(1) << zoom {
				corner := place{x << (32 - zoom), y << (32 - zoom)}
				inner := place{corner.x | 0x12345, corner.y | 0x54321}
				index := corner.hilbert() >> (64 - 2*zoom)
				require.Equal(t, index, inner.hilbert()>>(64-2*zoom))
				tiles[index] = place{x, y}
			}
		}
		for i := 1; i < len(tiles); i++ {
			dx, dy := int(tiles[i].x)-int(tiles[i-1].x), int(tiles[i].y)-int(tiles[i-1].y)
			require.Equal(t, 1, dx*dx+dy*dy)
		}
	}
}
