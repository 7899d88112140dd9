package layers

import (
	"errors"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// running returns a started layer for UTC. It must be called in a synctest bubble, where time
// starts at midnight on 2000-01-01.
func running(t *testing.T, cfg Config) *Layer {
	l := prepared(cfg)
	l.Start()
	t.Cleanup(l.Stop)
	return l
}

// sleep lets time pass in the bubble, and waits until all goroutines are blocked.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// periodsOf returns the start times of the periods in a response, by street.
func periodsOf(t *testing.T, l *Layer, query string) map[int32][]string {
	t.Helper()
	ctx, err := get(l, client("UTC"), query)
	require.NoError(t, err)
	starts := map[int32][]string{}
	for _, s := range layerOf(t, ctx).StreetForecast {
		for _, p := range s.Forecast {
			starts[s.Street] = append(starts[s.Street], p.Start[11:16])
		}
	}
	return starts
}

func TestNoLayerYet(t *testing.T) {
	prometheus.Unregister(age) // registered by other tests
	l := prepared(DefaultConfig())
	l.Put(forecast(1, 1, noon, 2, 50))
	l.build(noon) // nothing was published
	_, err := get(l, client("UTC"), "")
	var apiErr *contract.APIError
	require.True(t, errors.As(err, &apiErr))
	require.Equal(t, contract.ServiceUnavailable, apiErr.Code)
	require.Positive(t, apiErr.RetryAfter)
	require.False(t, l.Status(noon).Published)
	require.False(t, hasAgeMetric(), "before the first layer")

	rebuild(l, noon)
	_, err = get(l, client("UTC"), "")
	require.NoError(t, err)
	require.True(t, hasAgeMetric())
}

func hasAgeMetric() bool {
	n, err := testutil.GatherAndCount(prometheus.DefaultGatherer, "trafficd_layers_age_seconds")
	return n == 1 && err == nil
}

func TestEmptyLayerIsServed(t *testing.T) {
	l := prepared(DefaultConfig())
	replace(l, nil)
	rebuild(l, noon)
	for _, encoding := range []string{"identity", "gzip"} {
		ctx, err := get(l, client("UTC"), "", "Accept-Encoding", encoding)
		require.NoError(t, err)
		require.Empty(t, layerOf(t, ctx).StreetForecast)
		ctx, err = get(l, client("UTC"), "?horizon=30", "Accept-Encoding", encoding, "Accept", "application/json")
		require.NoError(t, err)
		require.Equal(t, `{"streetForecast":[]}`, string(unpack(t, header(ctx, "Content-Encoding"), ctx.Response.Body())))
	}
}

func TestPutRemoveReplace(t *testing.T) {
	l := prepared(DefaultConfig())
	publish := func() map[int32][]string {
		rebuild(l, noon)
		return periodsOf(t, l, "")
	}
	l.Put(forecast(1, 1, noon, 1, 50))
	l.Put(forecast(2, 1, noon, 1, 50))
	l.Put(forecast(2, 2, noon.Add(time.Hour), 1, 50)) // the other direction is another street
	require.Equal(t, map[int32][]string{1: {"12:00"}, 2: {"12:00", "13:00"}}, publish())

	l.Put(forecast(1, 1, noon.Add(15*time.Minute), 2, 50)) // a later forecast replaces the earlier one
	l.Remove(2, 2)
	l.Remove(9, 9)
	require.Equal(t, map[int32][]string{1: {"12:15", "12:30"}, 2: {"12:00"}}, publish())

	l.Put(forecast(7, 1, noon, 1, 50))
	replace(l, []*pb.StreetForecast{forecast(3, 1, noon, 1, 50), forecast(4, 1, noon, 1, 50), forecast(3, 1, noon, 2, 50)})
	l.Remove(4, 1)
	l.Put(forecast(5, 1, noon, 1, 50))
	require.Equal(t, map[int32][]string{3: {"12:00", "12:15"}, 5: {"12:00"}}, publish())

	l.Put(&pb.StreetForecast{Street: 6, Forecast: []*pb.ForecastPeriod{{Start: "noon", End: "later"}}})
	l.Put(&pb.StreetForecast{Street: 3, Fromnode: 1, Forecast: []*pb.ForecastPeriod{{Start: "noon", End: "later"}}})
	require.Equal(t, map[int32][]string{3: {"12:00", "12:15"}, 5: {"12:00"}}, publish(), "invalid forecasts must change nothing")
	require.Contains(t, l.Status(noon).Error, "street 3 from node 1")
}

// TestUnpublishedChangesAreNotBuilt checks that a forecast put after Publish is not built before
// the next Publish.
func TestUnpublishedChangesAreNotBuilt(t *testing.T) {
	l := prepared(DefaultConfig())
	l.Put(forecast(1, 1, noon, 1, 50))
	l.Publish(noon)
	l.Put(forecast(2, 1, noon, 1, 50))
	l.build(noon)
	require.Equal(t, map[int32][]string{1: {"12:00"}}, periodsOf(t, l, ""))
	replace(l, []*pb.StreetForecast{forecast(3, 1, noon, 1, 50)})
	l.Publish(noon)
	rebuild(l, noon)
	require.Equal(t, map[int32][]string{3: {"12:00"}}, periodsOf(t, l, ""))
}

func TestHorizons(t *testing.T) {
	l := prepared(fiveHorizons())
	overlapping := forecast(3, 1, noon.Add(25*time.Minute), 1, 77) // 12:25 to 12:40
	overlapping.Forecast = append(overlapping.Forecast, forecast(3, 1, noon.Add(30*time.Minute), 1, 88).Forecast...)
	replace(l, []*pb.StreetForecast{forecast(1, 1, noon, 3, 50), forecast(2, 1, noon.Add(45*time.Minute), 1, 50), overlapping})
	l.Publish(noon)
	f := func(ref time.Time, query string, want map[int32][]string) {
		t.Helper()
		l.build(ref)
		require.Equal(t, want, periodsOf(t, l, query), "%v %s", ref, query)
	}
	all := map[int32][]string{1: {"12:00", "12:15", "12:30"}, 2: {"12:45"}, 3: {"12:25", "12:30"}}
	f(noon, "", all)
	f(noon.Add(59*time.Second), "", all)
	f(noon, "?horizon=0", map[int32][]string{1: {"12:00"}})
	f(noon, "?horizon=15", map[int32][]string{1: {"12:15"}})
	f(noon, "?horizon=30", map[int32][]string{1: {"12:30"}, 3: {"12:30"}}) // the more specific one
	f(noon, "?horizon=45", map[int32][]string{2: {"12:45"}})
	f(noon, "?horizon=60", map[int32][]string{})
	f(noon.Add(10*time.Minute), "?horizon=15", map[int32][]string{1: {"12:15"}, 3: {"12:25"}})
	f(noon.Add(14*time.Minute+59*time.Second), "?horizon=0", map[int32][]string{1: {"12:00"}})
	f(noon.Add(15*time.Minute), "?horizon=0", map[int32][]string{1: {"12:15"}})
	f(noon.Add(15*time.Minute), "", map[int32][]string{1: {"12:15", "12:30"}, 2: {"12:45"}, 3: {"12:25", "12:30"}})
	f(noon, "", all) // the clock is set back, and the same streets are shown
	f(noon.Add(40*time.Minute), "", map[int32][]string{1: {"12:30"}, 2: {"12:45"}, 3: {"12:30"}})
	f(noon.Add(2*time.Hour), "", map[int32][]string{})
	f(noon, "", all) // the clock is set back
	for _, invalid := range []string{"?horizon=20", "?horizon=", "?horizon=030", "?horizon=-15", "?horizon=x", "?horizon=30&horizon=60", "?horizon=30&horizon=30"} {
		_, err := get(l, client("UTC"), invalid)
		var apiErr *contract.APIError
		require.True(t, errors.As(err, &apiErr), invalid)
		require.Equal(t, contract.InvalidParameter, apiErr.Code)
		require.Equal(t, "horizon", apiErr.Parameter)
		require.Contains(t, apiErr.Description, "one of [0 15 30 45 60] minutes")
	}
}

func TestEndedStreetsAreRemoved(t *testing.T) {
	l := prepared(DefaultConfig())
	l.Put(forecast(1, 1, noon, 1, 50))
	rebuild(l, noon)
	for _, later := range []time.Duration{time.Hour, 2 * time.Hour} {
		l.Put(forecast(2, 1, noon.Add(24*time.Hour), 1, 50))
		l.Publish(noon)
		l.build(noon.Add(later))
		require.Len(t, l.current.Load().numbered, map[time.Duration]int{time.Hour: 2, 2 * time.Hour: 1}[later])
	}
}

func TestMaxStreets(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxStreets = 3
	l := prepared(cfg)
	for street := int32(5); street > 0; street-- {
		l.Put(forecast(street, 1, noon, 1, 50))
	}
	rebuild(l, noon)
	require.Equal(t, map[int32][]string{1: {"12:00"}, 2: {"12:00"}, 3: {"12:00"}}, periodsOf(t, l, ""))
	require.Equal(t, 2, l.Status(noon).LeftOut)
	l.Remove(1, 1)
	rebuild(l, noon)
	require.Equal(t, 2, l.Status(noon).LeftOut, "streets left out earlier must not be added")
	replace(l, []*pb.StreetForecast{forecast(9, 1, noon, 1, 50)})
	rebuild(l, noon)
	require.Zero(t, l.Status(noon).LeftOut)
}

// TestUnlocatedStreets checks that the status counts the streets that no map shows.
func TestUnlocatedStreets(t *testing.T) {
	l := prepared(DefaultConfig())
	for street := range int32(101) { // every 50th street has an invalid code
		l.Put(forecast(street, 1, noon, 1, 50))
	}
	empty := forecast(200, 1, noon, 1, 50)
	empty.OpenLRcode = ""
	l.Put(empty)
	rebuild(l, noon)
	require.Equal(t, 102, l.Status(noon).Streets)
	require.Equal(t, 4, l.Status(noon).Unlocated)
	l.Remove(200, 1)
	rebuild(l, noon)
	require.Equal(t, 3, l.Status(noon).Unlocated)
}

// TestEndedStreetsMakeRoom checks that streets that are kept after their end do not displace
// others.
func TestEndedStreetsMakeRoom(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxStreets = 3
	l := prepared(cfg)
	l.Put(forecast(1, 1, noon, 1, 50))
	l.Put(forecast(2, 1, noon, 1, 50))
	rebuild(l, noon)
	_, _, version, _ := shownIn(t, l, "")
	later := noon.Add(30 * time.Minute)
	for street := range int32(4) {
		l.Put(forecast(3+street, 1, later, 1, 50))
	}
	rebuild(l, later)
	require.Equal(t, map[int32][]string{3: {"12:30"}, 4: {"12:30"}, 5: {"12:30"}}, periodsOf(t, l, ""))
	require.Equal(t, 1, l.Status(later).LeftOut)
	changes, _, _, content := shownIn(t, l, "?since="+url.QueryEscape(version))
	require.Equal(t, "changes", content)
	require.Len(t, changes, 5)
	require.Empty(t, changes[key{1, 1}].Forecast)
}

func TestLayerChangesAtStartOfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		start := time.Now() // 00:00:00
		sleep(10 * time.Second)
		replace(l, []*pb.StreetForecast{forecast(1, 1, start, 2, 50), forecast(2, 1, start.Add(15*time.Minute), 1, 50)})
		l.Publish(time.Now())
		synctest.Wait()
		require.Equal(t, map[int32][]string{1: {"00:00", "00:15"}, 2: {"00:15"}}, periodsOf(t, l, ""))
		sleep(time.Second) // a new layer has no Last-Modified
		first, _ := get(l, client("UTC"), "")

		sleep(14*time.Minute + 48*time.Second) // 00:14:59
		second, _ := get(l, client("UTC"), "")
		require.Equal(t, header(first, "ETag"), header(second, "ETag"))
		require.Equal(t, header(first, "Last-Modified"), header(second, "Last-Modified"))
		require.Equal(t, "889", header(second, "Forecast-Age"))

		sleep(time.Second) // 00:15:00
		third, _ := get(l, client("UTC"), "")
		require.Equal(t, map[int32][]string{1: {"00:15"}, 2: {"00:15"}}, periodsOf(t, l, ""))
		require.NotEqual(t, header(second, "ETag"), header(third, "ETag"))
		sleep(time.Second)
		third, _ = get(l, client("UTC"), "")
		require.Equal(t, "Sat, 01 Jan 2000 00:15:00 GMT", header(third, "Last-Modified"))
		sleep(15 * time.Minute)
		require.Empty(t, periodsOf(t, l, ""))
	})
}

func TestBuildsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		start := time.Now()
		for i := range 90 {
			l.Put(forecast(int32(i), 1, start, 2, 50))
			l.Publish(time.Now())
			sleep(10 * time.Millisecond)
		}
		require.EqualValues(t, 1, l.Status(time.Now()).Builds, "only the first one must be built immediately")
		sleep(time.Second)
		require.EqualValues(t, 2, l.Status(time.Now()).Builds)
		require.Len(t, periodsOf(t, l, ""), 90)
		sleep(time.Second)
		ctx, _ := get(l, client("UTC"), "")
		require.Equal(t, "Sat, 01 Jan 2000 00:00:01 GMT", header(ctx, "Last-Modified"), "two layers must not have the same Last-Modified")
	})
}

// TestMinuteEndsDuringBuildInterval checks that a build shortly before the end of a minute does not
// prevent the build at the end of the minute.
func TestMinuteEndsDuringBuildInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		start := time.Now()
		sleep(14*time.Minute + 59*time.Second + 900*time.Millisecond)
		l.Put(forecast(1, 1, start, 2, 50))
		l.Publish(time.Now())
		sleep(time.Second)
		require.Equal(t, map[int32][]string{1: {"00:15"}}, periodsOf(t, l, ""))
	})
}

func TestZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		replace(l, city(50, time.Now()))
		l.Publish(time.Now())
		synctest.Wait()
		etags := map[string]bool{}
		for _, zone := range []string{"Europe/Copenhagen", "America/Phoenix", "UTC"} { // with and without daylight saving time
			c := client(zone)
			l.Prepare([]*contract.Client{client("UTC"), c, {Rights: contract.RightIngest, Zone: client("Asia/Tokyo").Zone}})
			ctx, err := get(l, c, "") // without waiting for a build
			require.NoError(t, err)
			etags[header(ctx, "ETag")] = true
			for _, s := range layerOf(t, ctx).StreetForecast {
				for _, p := range s.Forecast {
					require.Equal(t, zone, p.Timezone)
				}
			}
		}
		require.Len(t, etags, 3)
		_, err := get(l, client("Asia/Tokyo"), "")
		require.Error(t, err, "the client lacks the right to read forecasts")
		l.build(time.Now())
		_, err = get(l, client("America/Phoenix"), "")
		require.NoError(t, err, "the old keys are still in use")
		sleep(3 * time.Minute)
		_, err = get(l, client("America/Phoenix"), "")
		require.Error(t, err, "no key has this time zone any longer")
		require.Len(t, l.current.Load().zones, 1)
	})
}

func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		l := running(t, cfg)
		cfg.Stale = staleRefuse
		strict := running(t, cfg)
		for _, l := range []*Layer{l, strict} {
			replace(l, city(10, time.Now()))
			l.Publish(time.Now())
		}
		sleep(30 * time.Minute)
		for _, l := range []*Layer{l, strict} {
			_, err := get(l, client("UTC"), "")
			require.NoError(t, err)
			require.False(t, l.Status(time.Now()).Stale)
		}
		sleep(time.Second)
		ctx, err := get(l, client("UTC"), "")
		require.NoError(t, err, "stale layers must be served")
		require.Equal(t, "1801", header(ctx, "Forecast-Age"))
		require.True(t, l.Status(time.Now()).Stale)
		require.False(t, l.Status(time.Now()).Refuses)

		_, err = get(strict, client("UTC"), "")
		var apiErr *contract.APIError
		require.True(t, errors.As(err, &apiErr))
		require.Equal(t, contract.ServiceUnavailable, apiErr.Code)
		require.Positive(t, apiErr.RetryAfter)
		require.True(t, strict.Status(time.Now()).Refuses)

		strict.Confirm(time.Now()) // without a change
		strict.Confirm(time.Now().Add(-time.Hour))
		ctx, err = get(strict, client("UTC"), "")
		require.NoError(t, err)
		require.Equal(t, "0", header(ctx, "Forecast-Age"))

		strict.Publish(time.Now().Add(-time.Hour)) // earlier data
		_, err = get(strict, client("UTC"), "")
		require.ErrorAs(t, err, &apiErr)
		require.True(t, strict.Status(time.Now()).Stale)
	})
}

// TestLayerWithoutCoverage checks that a layer is stale, however recent its data is, if all its
// periods have ended or end before the first horizon.
func TestLayerWithoutCoverage(t *testing.T) {
	f := func(end time.Duration, wantReason string) {
		t.Helper()
		cfg := DefaultConfig()
		cfg.Stale, cfg.Horizons = staleRefuse, []int{60, 30}
		l := prepared(cfg)
		now := time.Now().Truncate(time.Minute)
		replace(l, city(10, now.Add(end-6*15*time.Minute)))
		rebuild(l, now)
		s := l.Status(now)
		require.Equal(t, wantReason != "", s.Stale)
		require.Equal(t, s.Stale, s.Refuses)
		require.Contains(t, s.Reason, wantReason)
		require.Equal(t, s.Stale, observe().Stale, "metric")
		ctx, err := get(l, client("UTC"), "")
		if s.Stale {
			require.Equal(t, staleLayer, err)
			return
		}
		require.NoError(t, err)
		require.Empty(t, s.Reason)
		require.Equal(t, now.Add(end).UTC(), s.Covered)
		require.Equal(t, now.Add(end).UTC().Format(time.RFC3339), header(ctx, "Forecast-Covered-Until"))
	}
	f(-30*time.Minute, "no street has a current or future forecast")
	f(30*time.Minute, "before the first horizon")
	f(32*time.Minute, "") // the minute may end during the test
}

// TestReplicasAgree compares two replicas that receive the same forecasts in different orders and
// at different times.
func TestReplicasAgree(t *testing.T) {
	all := city(700, noon)
	a, b := prepared(DefaultConfig()), prepared(DefaultConfig())
	replace(a, clones(all))
	a.Publish(noon)
	a.build(noon.Add(20 * time.Minute))

	shuffled := clones(all)
	slices.Reverse(shuffled)
	for i, f := range shuffled {
		slices.Reverse(f.Forecast)
		if i%3 == 0 { // receive other forecasts first
			b.Put(forecast(f.Street, f.Fromnode, noon, 1, -1))
			b.Put(forecast(f.Street, f.Fromnode+1, noon, 1, -1))
		}
	}
	for i, f := range shuffled {
		b.Remove(f.Street, f.Fromnode+1)
		b.Put(f)
		if i%100 == 0 {
			b.Publish(noon)
			b.build(noon.Add(time.Duration(i) * time.Second))
		}
	}
	b.Publish(noon)
	b.build(noon.Add(20*time.Minute + 30*time.Second))
	requireSame(t, a, b)
}

func clones(all []*pb.StreetForecast) []*pb.StreetForecast {
	list := make([]*pb.StreetForecast, 0, len(all))
	for _, f := range all {
		list = append(list, proto.Clone(f).(*pb.StreetForecast))
	}
	return list
}

func requireSame(t testing.TB, a, b *Layer) {
	t.Helper()
	for _, query := range []string{"", "?horizon=0", "?horizon=15", "?horizon=30", "?horizon=45", "?horizon=60"} {
		for _, accept := range []string{"", "application/json"} {
			for _, encoding := range []string{"", "gzip"} {
				x, err := get(a, client("UTC"), query, "Accept", accept, "Accept-Encoding", encoding)
				require.NoError(t, err)
				y, err := get(b, client("UTC"), query, "Accept", accept, "Accept-Encoding", encoding)
				require.NoError(t, err)
				require.Equal(t, encoding, header(x, "Content-Encoding"))
				require.Regexp(t, `^"[0-9a-f]{16}(-j?g?)?"$`, header(x, "ETag"))
				require.Equal(t, header(x, "ETag"), header(y, "ETag"), "%s %s %s", query, accept, encoding)
				require.True(t, slices.Equal(x.Response.Body(), y.Response.Body()))
			}
		}
	}
}

func TestConfig(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	f := func(key string, change func(*Config)) {
		t.Helper()
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), key)
	}
	f("max_streets", func(c *Config) { c.MaxStreets = 0 })
	f("horizons", func(c *Config) { c.Horizons = []int{-1} })
	f("horizons", func(c *Config) { c.Horizons = []int{15, 15} })
	f("horizons", func(c *Config) { c.Horizons = make([]int, 13) })
	f("stale_after", func(c *Config) { c.StaleAfter = 0 })
	f("stale is", func(c *Config) { c.Stale = "maybe" })
	c := DefaultConfig()
	c.Horizons = nil // only the whole layer
	require.NoError(t, c.Validate())
	l := New(c, zerolog.Nop())
	require.Empty(t, l.views)
}
