package layers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestUpdatesMatchFullBuilds makes random updates, and compares the layer after each with a full
// build.
func TestUpdatesMatchFullBuilds(t *testing.T) {
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 7))
		l := prepared(DefaultConfig())
		now, known := noon, map[key]*pb.StreetForecast{}
		for range 8 {
			now = now.Add(time.Duration(random.IntN(20*60)-4*60) * time.Second) // sometimes the clock is set back
			change(l, known, random, now)
			rebuild(l, now)

			fresh := prepared(DefaultConfig())
			for _, f := range known { // streets that have ended make no difference
				if s, err := newStreet(f); err == nil && s.live(instantOf(now.Truncate(time.Minute))) {
					fresh.Put(f)
				}
			}
			rebuild(fresh, now)
			requireSame(t, fresh, l)
			require.LessOrEqual(t, len(l.builder.ordered), len(known))
		}
	}
}

// change makes the same random changes to the layer and to the model, which is known.
func change(l *Layer, known map[key]*pb.StreetForecast, random *rand.Rand, now time.Time) {
	if random.IntN(5) == 0 {
		clear(known)
		for _, f := range city(300, now) {
			known[key{f.Street, f.Fromnode}] = f
		}
		var all []*pb.StreetForecast
		for _, f := range known {
			all = append(all, f)
		}
		replace(l, clones(all))
	}
	for range random.IntN(60) {
		k := key{1000 + random.Int32N(500), random.Int32N(3)}
		f := forecast(k.street, k.fromnode, now.Add(time.Duration(random.IntN(60)-30)*time.Minute), random.IntN(5), float64(random.IntN(3)))
		known[k] = f
		l.Put(clones([]*pb.StreetForecast{f})[0])
	}
	for k := range known {
		if random.IntN(20) == 0 {
			delete(known, k)
			l.Remove(k.street, k.fromnode)
		}
	}
}

func TestUnchangedPiecesAreReused(t *testing.T) {
	all := city(3000, noon)
	l := prepared(fiveHorizons())
	built := func() float64 {
		before := testutil.ToFloat64(piecesBuilt)
		rebuild(l, noon)
		return testutil.ToFloat64(piecesBuilt) - before
	}
	documents := float64(len(l.builder.views) / 2) // those with the optional members show the same
	replace(l, clones(all))
	first := built()
	require.Equal(t, documents*float64(len(l.current.Load().cells)), first)

	replace(l, clones(all)) // the same again
	before := l.current.Load().zones["UTC"]
	require.Zero(t, built())
	require.True(t, slices.Equal(before, l.current.Load().zones["UTC"]), "the documents must be reused")

	l.Put(forecast(all[1500].Street, all[1500].Fromnode, noon, 6, 99))
	require.Equal(t, documents, built(), "one cell")

	last := forecast(all[1500].Street, all[1500].Fromnode, noon, 6, 99)
	last.Forecast[5].Speed = 1 // from 13:15, which no horizon reaches
	l.Put(last)
	before = l.current.Load().zones["UTC"]
	built()
	for i, d := range l.current.Load().zones["UTC"] {
		require.Equal(t, i%int(documents) > 0, before[i].sum == d.sum, "document %d: only the whole layer, document 0, must change", i)
	}
}

// TestHorizonsReusePieces checks that at the end of a period each horizon reuses the pieces of the
// next longer one, whatever the times of the builds are.
func TestHorizonsReusePieces(t *testing.T) {
	l := prepared(fiveHorizons())
	replace(l, city(500, noon))
	l.Publish(noon)
	built := func(after time.Duration) float64 {
		before := testutil.ToFloat64(piecesBuilt)
		l.build(noon.Add(after))
		return testutil.ToFloat64(piecesBuilt) - before
	}
	first := built(7 * time.Minute)
	cells := float64(len(l.current.Load().cells))
	require.Equal(t, 6*cells, first)
	require.Zero(t, built(14*time.Minute))
	require.Equal(t, 2*cells, built(15*time.Minute), "the longest horizon and the whole layer")
	require.Zero(t, built(16*time.Minute))
}

func TestSnapshotsAreImmutable(t *testing.T) {
	l := prepared(fiveHorizons())
	build := func(speed float64) *snapshot {
		for street := range int32(300) {
			l.Put(forecast(street, 1, noon, 6, speed))
		}
		rebuild(l, noon)
		return l.current.Load()
	}
	etags := func(s *snapshot) (list []string) {
		for _, d := range s.zones["UTC"] {
			list = append(list, string(d.etags[protobuf][identity]))
		}
		return list
	}
	first := build(1)
	before := etags(first)
	second := build(2)
	require.Equal(t, before, etags(first))
	for i, etag := range etags(second) {
		require.NotEqual(t, before[i], etag, "document %d", i)
	}
}

// TestPiecesAreShared checks that after a small change most segments of a body share memory with
// the previous body.
func TestPiecesAreShared(t *testing.T) {
	l := served(t, 8000)
	_, err := get(l, client("UTC"), "", "Accept-Encoding", "gzip")
	require.NoError(t, err)
	segments := func() map[*byte]bool {
		all := map[*byte]bool{}
		for _, d := range l.current.Load().zones["UTC"] {
			for _, segment := range d.body(protobuf, gzipped).segments {
				all[&segment[0]] = true
			}
		}
		return all
	}
	before := segments()
	l.Put(forecast(5001, 1, noon, 1, 99)) // one more street
	rebuild(l, noon)
	shared, after := 0, segments()
	for segment := range after {
		if before[segment] {
			shared++
		}
	}
	require.Greater(t, shared, len(after)/2)
	require.Less(t, shared, len(after))
}
