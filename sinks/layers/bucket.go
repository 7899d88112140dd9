package layers

import "slices"

// bucketStreets is how many streets a bucket holds on the average. Fewer make updates
// cheaper and compressed bodies larger (128 of them: a tenth smaller), because a bucket's
// blocks know nothing of those before them. Streets that change are neighbours most of the time.
// Every hundredth of the whole network touches most buckets; for that to cost little they would have to
// hold four, and the bodies, which every client gets, would be twice as large.
const bucketStreets = 64

// pageBuckets is how many buckets a page holds on the average. Fewer have an update copy
// less, and an answer take more writes.
const pageBuckets = 64

// bucket is a run of streets in their order. It is immutable.
type bucket struct{ streets []*street }

func (b *bucket) first() key { return b.streets[0].id }

// cut puts the streets into buckets. A bucket of old that holds the same
// streets is taken over. All entries of a street with one number are in one bucket.
func cut(streets []*street, old []*bucket) []*bucket {
	known := make(map[key]*bucket, len(old))
	for _, b := range old {
		known[b.first()] = b
	}
	var buckets []*bucket
	begins := func(i int) bool {
		return streets[i-1].id.street != streets[i].id.street && scatter(streets[i].id)%(bucketStreets/2) == 0
	}
	for from, to := range runs(len(streets), bucketStreets/2, begins) {
		b := known[streets[from].id]
		if b == nil || !slices.Equal(b.streets, streets[from:to]) {
			b = &bucket{slices.Clone(streets[from:to])} // a clone, or one bucket would keep the whole of streets
		}
		buckets = append(buckets, b)
	}
	return buckets
}

// runs cuts n things in their order into runs, and gives each as the numbers that it
// begins at and ends before. One begins where begins says so, if the run before has
// enough things. So a thing more or less shifts a few runs, and soon the same ones begin again.
func runs(n, least int, begins func(i int) bool) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from := 0
		for i := range n {
			if i-from >= least && begins(i) {
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

// opensPage tells whether a page may begin at the bucket; by other bits than those that made
// the bucket begin.
func (b *bucket) opensPage() bool {
	return scatter(b.first())>>16%(pageBuckets/2) == 0
}

// scatter is the finaliser of MurmurHash3: neighbouring numbers get unrelated hashes.
func scatter(k key) uint32 {
	x := uint32(k.street)
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}
