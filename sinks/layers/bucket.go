package layers

import (
	"slices"
	"sort"
)

// maxBucketStreets is the maximum number of streets in a bucket; the mean is about two thirds of
// it. Smaller buckets make updates cheaper and compressed bodies larger, because each bucket is
// compressed separately (see BenchmarkBucketSizes). Streets that change together are mostly
// neighbours, whereas a random hundredth of the network touches most buckets. The table is for
// 100,000 streets with 12 periods each. Sizes are relative to gzip -6, and the CPU time of updating
// a random hundredth is relative to a full build:
//
//	maximum   mean   gzip   zstd   gzip, one horizon   update
//	    192    140   0.95   0.92                1.17     0.70
//	     96     73   1.00   0.97                1.26     0.47
//	     80     56   1.03   0.99                1.31     0.40
//	     64     39   1.09   1.03                1.40     0.31
//	     32     21   1.23   1.13                1.62     0.19
//
// A zstd body must be smaller than the output of gzip -6.
const maxBucketStreets = 80

// bucket is a run of consecutive streets. Its streets are immutable; its parts belong to the
// builder.
type bucket struct {
	streets  []*street
	bounds   area // the smallest area that contains all places of the streets
	located  bool // all streets have a place
	parts    []part
	oldParts []part // parts of the previous bucket with the same first street
}

func newBucket(streets []*street) *bucket {
	b := &bucket{streets: slices.Clone(streets), bounds: noArea, located: true} // a subslice would keep all streets in memory
	for _, s := range streets {
		if s.located {
			b.bounds = b.bounds.extend(s.place)
		}
		b.located = b.located && s.located
	}
	return b
}

// cut divides the streets into buckets (see doc.go) and reuses each old bucket that has the same
// streets. It halves buckets with more than limit streets.
func cut(streets []*street, limit int, old ...*bucket) (buckets []*bucket) {
	known := make(map[key]*bucket, len(old))
	for _, b := range old {
		known[b.streets[0].id] = b
	}
	add := func(run []*street) {
		b := known[run[0].id]
		if b == nil || !slices.Equal(b.streets, run) {
			previous := b
			if b = newBucket(run); previous != nil {
				b.oldParts = previous.parts
			}
		}
		buckets = append(buckets, b)
	}
	var divide func(run []*street, bit int) // the positions of the run are equal above bit
	divide = func(run []*street, bit int) {
		switch {
		case len(run) == 0:
		case len(run) <= limit || bit < 0:
			add(run)
		default:
			half := sort.Search(len(run), func(i int) bool { return run[i].position>>bit&1 == 1 })
			divide(run[:half], bit-1)
			divide(run[half:], bit-1)
		}
	}
	divide(streets, 63)
	return buckets
}
