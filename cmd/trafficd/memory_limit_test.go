package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryLimitFollowsUse(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const limit, ballast = 32 << 20, 64 << 20
	stop := limitMemory(limit)
	defer stop()
	require.EqualValues(t, limit, debug.SetMemoryLimit(-1))
	use := make([]byte, ballast)
	runtime.GC()
	require.Eventually(t, func() bool { return debug.SetMemoryLimit(-1) >= ballast*3/2 }, time.Minute, 10*time.Millisecond)
	runtime.KeepAlive(use)
}

func TestMemoryLimitCanBeDisabled(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	limitMemory(0)()
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitMemory(64 << 20)()
	require.Equal(t, before, debug.SetMemoryLimit(-1))
}
