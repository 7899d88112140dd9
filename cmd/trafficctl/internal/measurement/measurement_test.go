package measurement

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlace(t *testing.T) {
	require.Equal(t, "line 7", Position{Row: 5, Line: 7}.String())
	require.Equal(t, "item 5", Position{Row: 5}.String())
}
