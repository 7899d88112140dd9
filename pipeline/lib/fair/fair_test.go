package fair

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharesLeaveSomething checks that the next client gets something even if all others take as
// much as they can, until nothing is left, and that what was given back is free again.
func TestSharesLeaveSomething(t *testing.T) {
	s := New(60)
	f := func(client string, n, held int64, why Verdict) {
		t.Helper()
		for s.Check(client, n) == Granted {
			s.Add(client, n)
		}
		require.Equal(t, why, s.Check(client, n))
		require.Equal(t, held, s.Held(client))
	}
	f("a", 1, 30, Exceeded)
	f("b", 1, 15, Exceeded)
	f("c", 1, 7, Exceeded)
	f("d", 5, 5, Exceeded)
	f("e", 5, 5, Exceeded) // of 3 that are left
	f("f", 1, 0, Full)
	require.EqualValues(t, -2, s.Free())
	s.Add("e", -5)
	f("f", 1, 1, Exceeded)
	for _, client := range []string{"a", "b", "c", "d", "f"} {
		s.Add(client, -s.Held(client))
	}
	require.Empty(t, slices.Collect(s.Clients()))
	require.Zero(t, s.Total())
	f("g", 31, 31, Exceeded)
	require.Equal(t, Granted, New(math.MaxInt64).Check("a", 1), "no limit")
}
