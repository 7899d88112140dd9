package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// limitMemory keeps garbage from taking the process over limit bytes, 0 for none. What is in use is bounded by other settings
// and may need more, a large forecast layer for one: a limit near it would have the garbage collector take half of the
// CPU. So the limit follows half as much again as is in use where that is more. The
// function returned ends that.
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
				debug.SetMemoryLimit(max(limit, inUse()*3/2))
			}
		}
	}()
	return func() { close(done) }
}

// inUse is what the last garbage collection left, in bytes.
func inUse() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
