package validate

import "trafficd/pipeline/batch"

// follower looks up codes in a snapshot. Batches list the detectors in a stable order, so the next detector is usually the
// one that followed the current one before: one comparison of adjacent bytes instead of a hash and a cache miss in the
// table (BenchmarkLookup).
type follower struct {
	known *batch.Detectors
	next  []uint32 // ordinal → its last successor
	last  uint32
}

// use prepares for a batch.
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

// has reports whether the code is in the snapshot.
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
