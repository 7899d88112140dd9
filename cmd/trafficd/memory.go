package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// limitMemory sets the soft memory limit, 0 for none, and returns a function that stops adjusting
// it. Other settings bound live memory, which may exceed the limit, for example with a large
// forecast layer. The garbage collector would then use half of the CPU, so limitMemory keeps the
// limit at 1.5 times live memory or more.
func limitMemory(limit int64) (stop func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	debug.SetMemoryLimit(limit)
	done, live := make(chan struct{}), []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // in use at the last garbage collection
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				metrics.Read(live)
				debug.SetMemoryLimit(max(limit, int64(live[0].Value.Uint64())*3/2))
			}
		}
	}()
	return func() { close(done) }
}
