package layers

import "slices"

// bucketStreets is how many streets a bucket holds on the average, a power of two. Fewer
// make updates cheaper and gzip bodies larger (128 of them: a tenth smaller), because a
// deflate block knows nothing of those before it.
const bucketStreets = 32

// bucket is a run of streets in their order. It is immutable.
type bucket struct{ streets []*street }

// cut puts the streets into buckets. A bucket of old that holds the same
// streets is taken over.
func cut(streets []*street, old []*bucket) []*bucket {
	known := make(map[key]*bucket, len(old))
	for _, b := range old {
		known[b.streets[0].id] = b
	}
	var buckets []*bucket
	for len(streets) > 0 {
		n := 1
		for n < len(streets) && !begins(streets[n-1].id, streets[n].id) {
			n++
		}
		b := known[streets[0].id]
		if b == nil || !slices.Equal(b.streets, streets[:n]) {
			b = &bucket{slices.Clone(streets[:n])} // a clone, or one bucket would keep the whole of streets
		}
		buckets = append(buckets, b)
		streets = streets[n:]
	}
	return buckets
}

// begins tells whether a bucket begins at this entry: at the first one of a
// street whose number hashes to zero.
func begins(before, this key) bool {
	return before.street != this.street && scatter(uint32(this.street))%bucketStreets == 0
}

// scatter is the finaliser of MurmurHash3: neighbouring numbers get unrelated hashes.
func scatter(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}
