package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

func TestDescribeCursor(t *testing.T) {
	f := func(want CursorStatus) {
		t.Helper()
		got, err := DescribeCursor(want.Done.Frame, want.Encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	at, end := batch.Position{Frame: 7, Row: 3}, batch.Position{Frame: 9}
	f(CursorStatus{Done: at})
	f(CursorStatus{Done: at, State: []byte("s")})
	f(CursorStatus{Done: at, State: []byte("s"), End: end, Plan: []byte("p")})
	f(CursorStatus{Done: at, End: end, Plan: []byte{}})

	f(CursorStatus{End: batch.Position{Frame: 1}, Plan: []byte{}})

	never, err := DescribeCursor(5, nil) // created by the journal, not saved yet
	require.NoError(t, err)
	require.Equal(t, CursorStatus{Done: batch.Position{Frame: 5}}, never)
	moved, err := DescribeCursor(4, CursorStatus{Done: batch.Position{Frame: 3, Row: 7}, State: []byte("s")}.Encode())
	require.NoError(t, err)
	require.Equal(t, CursorStatus{Done: batch.Position{Frame: 4}}, moved, "the frame of the row was deleted")
}

// TestDescribeInvalidCursor checks that every truncation and every other version is an error.
func TestDescribeInvalidCursor(t *testing.T) {
	whole := CursorStatus{Done: batch.Position{Frame: 7, Row: 300}, State: []byte("state"), End: batch.Position{Frame: 9, Row: 1}, Plan: []byte("plan")}.Encode()
	for n := 1; n < len(whole); n++ {
		_, err := DescribeCursor(7, whole[:n])
		require.ErrorIs(t, err, errProgress, "%d bytes", n)
		require.ErrorContains(t, err, "frame 7")
	}
	_, err := DescribeCursor(7, append(whole, 0))
	require.ErrorIs(t, err, errProgress)
	whole[0]++
	_, err = DescribeCursor(7, whole)
	require.ErrorIs(t, err, errProgress)
}
