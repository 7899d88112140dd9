package route

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/traffic/roads"
)

// BenchmarkCity matches streets of a made-up city with as many links as a large one.
func BenchmarkCity(b *testing.B) {
	m := roads.Town(370, 1)
	n := networkOf(b, m.WritePBF)
	g := roads.NewGraph(m)
	r := rand.New(rand.NewPCG(1, 2))
	var streets []Street
	for len(streets) < 100_000 {
		if p, ok := g.Random(r, 50+500*r.Float64()); ok {
			streets = append(streets, Street{OpenLR: code(b, g.Line(p))})
		}
	}
	for b.Loop() {
		matches, err := MatchAll(b.Context(), n, streets, func() {})
		require.NoError(b, err)
		require.Len(b, matches, len(streets))
	}
	b.ReportMetric(float64(n.Links()), "links")
	b.ReportMetric(float64(len(streets))*float64(b.N)/b.Elapsed().Seconds(), "streets/s")
}
