package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for c := OK; c < CodeCount; c++ {
		require.NotEmpty(t, c.String())
	}
	require.Equal(t, "UNKNOWN", CodeCount.String())
	require.Equal(t, "linkId", FieldLinkID.String())
	require.Empty(t, FieldCount.String())
}
