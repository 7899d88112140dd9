package feeds

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNetherlands checks that every value of a whole publication is accounted for.
func TestNetherlands(t *testing.T) {
	document := large(t, "ndw/trafficspeed.xml.gz")
	if document == nil {
		return
	}
	r := read(t, "ndw", string(document), nil)
	require.Equal(t, 19_587, r.Sites)
	require.Equal(t, 189_986, r.Values)
	require.Equal(t, 121_608, r.Of(Measured))
	require.Equal(t, 87_696, r.Counts[Flow][Measured])
	require.Equal(t, 33_912, r.Counts[Speed][Measured])
	require.Equal(t, 53_699, r.Of(NoVehicle))
	require.Equal(t, 14_679, r.Of(Fault))
	require.Zero(t, r.Of(Skipped))
}
