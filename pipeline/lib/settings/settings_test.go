package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithin(t *testing.T) {
	require.NoError(t, Within("rows", 1, 1, 2, "reason"))
	require.NoError(t, Within("rows", 2, 1, 2, "reason"))
	require.EqualError(t, Within("rows", 0, 1, 2, "reason"), "rows is 0, must be 1 to 2: reason")
	require.EqualError(t, Within("rows", 3, 1, 2, "reason"), "rows is 3, must be 1 to 2: reason")
	require.NoError(t, Within("rows", 3, 1, 0, "reason"), "the bound is invalid, and has an error of its own")
}
