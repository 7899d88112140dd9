package layers

import "slices"

// bucketStreets is the mean number of streets in a bucket. Smaller buckets make updates cheaper and
// compressed bodies larger (128 streets: a tenth smaller), because each bucket is compressed without
// the ones before it. Streets that change are mostly neighbours. A random hundredth of the network
// touches most buckets; only buckets of about four streets would make that cheap, and would double
// the bodies that every client downloads.
const bucketStreets = 64

// pageBuckets is the mean number of buckets in a page. Smaller pages make an update copy less and a
// response take more writes.
const pageBuckets = 64

// bucket is a run of streets in order. It is immutable.
type bucket struct{ streets []*street }

func (b *bucket) first() key { return b.streets[0].id }

// cut divides the streets into buckets and reuses each old bucket that holds the same streets. All
// entries of a street number are in one bucket.
func cut(streets []*street, old []*bucket) []*bucket {
	known := make(map[key]*bucket, len(old))
	for _, b := range old {
		known[b.first()] = b
	}
	var buckets []*bucket
	starts := func(i int) bool {
		return streets[i-1].id.street != streets[i].id.street && mix32(streets[i].id)%(bucketStreets/2) == 0
	}
	for from, to := range runs(len(streets), bucketStreets/2, starts) {
		b := known[streets[from].id]
		if b == nil || !slices.Equal(b.streets, streets[from:to]) {
			b = &bucket{slices.Clone(streets[from:to])} // a subslice would keep all streets in memory
		}
		buckets = append(buckets, b)
	}
	return buckets
}

// runs divides n items into runs [from, to) of at least the given length. A run starts at each item
// that starts accepts, once the run before it is long enough, so that an item added or removed moves
// few boundaries.
func runs(n, least int, starts func(i int) bool) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from := 0
		for i := range n {
			if i-from >= least && starts(i) {
				if !yield(from, i) {
					return
				}
				from = i
			}
		}
		if from < n {
			yield(from, n)
		}
	}
}

// startsPage reports whether a page may start at the bucket. It uses other bits of the hash than cut.
func (b *bucket) startsPage() bool {
	return mix32(b.first())>>16%(pageBuckets/2) == 0
}

// mix32 is the finalizer of MurmurHash3: neighbouring street numbers get unrelated hashes.
func mix32(k key) uint32 {
	x := uint32(k.street)
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}
