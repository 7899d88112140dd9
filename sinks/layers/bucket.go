package layers

import (
	"slices"
	"sort"
)

// bucketStreets is the maximum number of streets in a bucket; the mean is about two thirds of it. Smaller
// buckets make updates cheaper and compressed bodies larger, because each bucket is compressed without
// the others: BenchmarkBucketSizes. Streets that change are mostly neighbours. A random hundredth of
// the network touches most buckets; only buckets of a few streets would make that cheap, and would
// double the bodies that every client downloads. Bodies would grow by a quarter if groups of 16 streets
// in a deflate block referred to no speeds of each other, with one code for any speeds, so that an
// update could copy the bits of the groups that have not changed.
const bucketStreets = 192

// bucket is a run of streets in order. Its streets are immutable; its parts belong to the builder.
type bucket struct {
	streets []*street
	bounds  area // of the streets' places
	located bool // all streets have a place
	parts   []part
	before  []part // of the bucket that had the first street before
}

func newBucket(streets []*street) *bucket {
	b := &bucket{streets: slices.Clone(streets), bounds: noArea, located: true} // a subslice would keep all streets in memory
	for _, s := range streets {
		if s.located {
			b.bounds = b.bounds.with(s.place)
		}
		b.located = b.located && s.located
	}
	return b
}

// cut divides the streets into buckets and reuses each old bucket that has the same streets. A bucket is
// a square of the map or neighbouring quarters of a square, so that a tile consists of whole buckets
// or is within one. Squares with too many streets are divided, so that the boundaries depend on the
// streets alone, and a street added or removed changes few.
func cut(streets []*street, limit int, old ...*bucket) (buckets []*bucket) {
	known := make(map[key]*bucket, len(old))
	for _, b := range old {
		known[b.streets[0].id] = b
	}
	add := func(run []*street) {
		if len(run) == 0 {
			return
		}
		b := known[run[0].id]
		if b == nil || !slices.Equal(b.streets, run) {
			last := b
			if b = newBucket(run); last != nil {
				b.before = last.parts
			}
		}
		buckets = append(buckets, b)
	}
	var divide func(square []*street, shift int)
	divide = func(square []*street, shift int) {
		if len(square) <= limit || shift < 0 {
			add(square)
			return
		}
		first := 0 // street that is not in a bucket yet
		for from, to := 0, 0; from < len(square); from = to {
			quarter := square[from].position >> shift
			to += sort.Search(len(square)-from, func(i int) bool { return square[from+i].position>>shift > quarter })
			switch {
			case to-from > limit:
				add(square[first:from])
				divide(square[from:to], shift-2)
				first = to
			case to-first > limit:
				add(square[first:from])
				first = from
			}
		}
		add(square[first:])
	}
	divide(streets, 62)
	return buckets
}
