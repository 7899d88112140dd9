package layers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func streetsOf(numbers ...int32) (list []*street) {
	for _, n := range numbers {
		list = append(list, &street{id: key{n, 1}})
	}
	return list
}

// TestCut checks the mean size of buckets, and that one street less changes few of them.
func TestCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var numbers []int32
	for n := int32(0); len(numbers) < 20_000; n += 1 + random.Int32N(5) {
		numbers = append(numbers, n)
	}
	streets := streetsOf(numbers...)
	buckets := cut(streets, nil)
	require.InDelta(t, len(streets)/bucketStreets, len(buckets), float64(len(buckets))/10)
	require.Equal(t, buckets, cut(slices.Clone(streets), buckets))

	for range 100 {
		at := random.IntN(len(streets))
		fewer := cut(slices.Delete(slices.Clone(streets), at, at+1), buckets)
		fresh := 0
		for _, b := range fewer {
			if !slices.Contains(buckets, b) {
				fresh++
			}
		}
		require.LessOrEqual(t, fresh, 20, "without street %d", at)
	}
}

// TestCutKeepsAStreetTogether: all entries of a street number are in one bucket.
func TestCutKeepsAStreetTogether(t *testing.T) {
	var streets []*street
	for node := range int32(1000) {
		streets = append(streets, &street{id: key{7, node}})
	}
	require.Len(t, cut(streets, nil), 1)
	require.Empty(t, cut(nil, nil))
}
