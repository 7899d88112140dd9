package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// limitMemory sets the soft memory limit, 0 for none, and returns a function that stops adjusting
// it. Other settings bound live memory, which may exceed the limit, for example with a large
// forecast layer. Because the garbage collector would then use half of the CPU, the limit is at
// least one and a half times live memory.
func limitMemory(limit int64) (stop func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	debug.SetMemoryLimit(limit)
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				debug.SetMemoryLimit(max(limit, live()*3/2))
			}
		}
	}()
	return func() { close(done) }
}

// live returns the number of bytes that the last garbage collection found in use.
func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
