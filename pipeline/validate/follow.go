package validate

import "trafficd/pipeline/batch"

// follower looks codes up in a snapshot. Batches name the detectors in a steady order, so the detector after another is
// most often the one that followed it before: one comparison of bytes that lie side by side, instead of a hash and a
// place in a table that is not in the cache (BenchmarkLookup).
type follower struct {
	known *batch.Detectors
	next  []uint32 // ordinal → the one that followed it last
	last  uint32
}

// use starts a batch.
func (f *follower) use(known *batch.Detectors) {
	if f.known == known {
		return
	}
	f.known, f.last = known, 0
	f.next = f.next[:0]
	for ord := range known.Len() {
		f.next = append(f.next, uint32(ord+1)%uint32(known.Len()))
	}
}

// has tells whether the code is in the snapshot.
func (f *follower) has(code []byte) bool {
	if len(f.next) == 0 {
		return false
	}
	guess := f.next[f.last]
	if string(f.known.Code(int(guess))) == string(code) {
		f.last = guess
		return true
	}
	ord, ok := f.known.Find(code)
	if ok {
		f.next[f.last], f.last = uint32(ord), uint32(ord)
	}
	return ok
}
