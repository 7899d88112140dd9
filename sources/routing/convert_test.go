package routing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

func TestConvertPoint(t *testing.T) {
	s := start(t, nil)
	r := ask[*xroute.ConvertGeometryResponse](s, convert(`Point"`, `<c:point x="8.2505556" y="48.7627778"/>`,
		options(`coordFormat="VENDOR_MERCATOR"`, "PLAIN", "WKT", "WKB", "KML"), ""))
	p := r.Result.(*xroute.Point)
	require.InDelta(t, 917419.9247, p.Point.X, 1e-4)
	require.InDelta(t, 6227728.6864, p.Point.Y, 1e-4)
	require.NotNil(t, p.KML)
	require.NotNil(t, p.WKT)
	require.Len(t, p.WKB, 21)
}
