package layers

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	weakref "weak"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/turns"
	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// shownIn returns the streets in a response by key, and three of its headers.
func shownIn(t *testing.T, l *Layer, query string, headers ...string) (streets map[key]*pb.StreetForecast, etag, version, content string) {
	t.Helper()
	ctx, err := get(l, client("UTC"), query, headers...)
	require.NoError(t, err, query)
	require.Equal(t, 200, ctx.Response.StatusCode())
	streets = map[key]*pb.StreetForecast{}
	for _, s := range layerOf(t, ctx).StreetForecast {
		k := key{s.Street, s.Fromnode}
		require.Nil(t, streets[k], "duplicate street in %s", query)
		streets[k] = s
	}
	return streets, header(ctx, "ETag"), header(ctx, "Forecast-Version"), header(ctx, "Forecast-Content")
}

// randomPart returns a query for a part of the layer, and a function that reports whether the part
// contains a street. Areas are near the places of codeOf.
func randomPart(random *rand.Rand) (query string, contains func(*pb.StreetForecast) bool) {
	located := func(within func(p openlr.Point) bool) func(*pb.StreetForecast) bool {
		return func(s *pb.StreetForecast) bool {
			line, err := openlr.Decode(s.OpenLRcode)
			return err == nil && within(line.Points[0])
		}
	}
	switch random.IntN(3) {
	case 0:
		west, south := 12.5+0.3*random.Float64(), 55.6+0.2*random.Float64()
		east, north := west+0.3*random.Float64(), south+0.2*random.Float64()
		return fmt.Sprintf("bbox=%v,%v,%v,%v", west, south, east, north), located(func(p openlr.Point) bool {
			return west <= p.Lon && p.Lon <= east && south <= p.Lat && p.Lat <= north
		})
	case 1:
		zoom := uint32(minZoom + random.IntN(maxZoom-minZoom+1))
		at := placeOf(12.5+0.24*random.Float64(), 55.6+0.2*random.Float64())
		x, y := at.x>>(32-zoom), at.y>>(32-zoom)
		return fmt.Sprintf("tile=%d/%d/%d", zoom, x, y), located(func(p openlr.Point) bool {
			q := placeOf(p.Lon, p.Lat)
			return q.x>>(32-zoom) == x && q.y>>(32-zoom) == y
		})
	}
	var numbers []int32
	for range 1 + random.IntN(20) {
		numbers = append(numbers, 990+random.Int32N(800))
	}
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
	return "street=" + text, func(s *pb.StreetForecast) bool { return slices.Contains(numbers, s.Street) }
}

// TestPartsMatchTheLayer makes random updates. After each update it compares parts of the layer, in
// random encodings, with the whole layer. It also compares the streets of clients that follow the
// layer or a part of it with the streets that a new client gets.
func TestPartsMatchTheLayer(t *testing.T) {
	type follower struct {
		query   string
		version string
		streets map[key]*pb.StreetForecast
	}
	type tagged struct {
		form    string
		streets map[key]*pb.StreetForecast
	}
	seeds := uint64(1)
	if needs.Long() {
		seeds = 2
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 8))
		l := prepared(DefaultConfig())
		now, known := noon, map[key]*pb.StreetForecast{}
		all := city(800, now)
		for _, f := range all {
			known[key{f.Street, f.Fromnode}] = extend(f, random)
		}
		replace(l, clones(all))
		followers := []*follower{}
		for _, horizon := range []string{"", "&horizon=15", "&fields=all", "&horizon=15&fields=all"} {
			followers = append(followers, &follower{query: horizon})
			for range 4 {
				part, _ := randomPart(random)
				followers = append(followers, &follower{query: "&" + part + horizon})
			}
		}
		etags, followedChanges, withoutCode := map[string]tagged{}, 0, 0
		for step := range 11 {
			if step > 0 && random.IntN(3) > 0 {
				now = now.Add(time.Duration(random.IntN(4*60)) * time.Second)
			}
			if step == 7 {
				now = now.Add(-10 * time.Minute) // the clock is set back
			}
			if step > 0 && step != 8 {
				for range random.IntN(30) {
					k := key{1000 + random.Int32N(1000), random.Int32N(3)}
					start := noon.Add(time.Duration(random.IntN(60)-30) * time.Minute)
					f := extend(forecast(k.street, k.fromnode, start, random.IntN(20), float64(random.IntN(3))), random)
					if step == 5 && random.IntN(20) == 0 {
						f.OpenLRcode = []string{"", codeOf(1000 + random.Int32N(1000))}[random.IntN(2)]
					}
					known[k] = f
					l.Put(clones([]*pb.StreetForecast{f})[0])
				}
				for k := range known {
					if random.IntN(200) == 0 {
						delete(known, k)
						l.Remove(k.street, k.fromnode)
					}
				}
			}
			rebuild(l, now)
			for _, horizon := range []string{"", "&horizon=15", "&fields=all", "&horizon=15&fields=all"} {
				whole, _, _, _ := shownIn(t, l, "?"+horizon)
				for range 5 {
					part, contains := randomPart(random)
					want := map[key]*pb.StreetForecast{}
					for k, s := range whole {
						if contains(s) {
							want[k] = s
						}
					}
					encoding := []string{"identity", "gzip"}[random.IntN(2)]
					got, etag, _, content := shownIn(t, l, "?"+part+horizon, "Accept-Encoding", encoding)
					requireStreets(t, want, got, part)
					require.Empty(t, content)
					_, again, _, _ := shownIn(t, l, "?"+horizon+"&"+part, "Accept-Encoding", encoding)
					require.Equal(t, etag, again)
					ctx, err := get(l, client("UTC"), "?"+part+horizon, "Accept-Encoding", encoding, "If-None-Match", etag)
					require.NoError(t, err)
					require.Equal(t, 304, ctx.Response.StatusCode())
					if before, known := etags[etag]; known {
						require.Equal(t, before.form, encoding+horizon, "an ETag must identify one form")
						requireStreets(t, before.streets, want, "an ETag must identify one content")
					}
					etags[etag] = tagged{encoding + horizon, want}
				}
			}
			for i, f := range followers {
				if step > 0 && random.IntN(3) == 0 && i > 0 {
					continue // the follower is several versions behind the next time
				}
				query := "?" + f.query
				if f.version != "" {
					query += "&since=" + url.QueryEscape(f.version)
				}
				got, etag, version, content := shownIn(t, l, query, "Accept-Encoding", []string{"identity", "gzip"}[random.IntN(2)])
				require.Equal(t, f.version == "", content == "")
				if content == "changes" {
					followedChanges++
					require.Contains(t, etag, strings.Trim(version, `"`), "the ETag must contain the version")
					for k, s := range got {
						if held := f.streets[k]; held != nil && s.OpenLRcode == "" {
							s.OpenLRcode = held.OpenLRcode
							withoutCode++
						}
						if f.streets[k] = s; len(s.Forecast) == 0 {
							delete(f.streets, k)
						}
					}
				} else {
					f.streets = got
				}
				f.version = version
				want, _, _, _ := shownIn(t, l, "?"+f.query)
				requireStreets(t, want, f.streets, query)
			}
		}
		require.Greater(t, followedChanges, 30)
		require.Positive(t, withoutCode)
	}
}

func requireStreets(t *testing.T, want, got map[key]*pb.StreetForecast, query string) {
	t.Helper()
	require.Len(t, got, len(want), query)
	for k, s := range want {
		require.True(t, proto.Equal(s, got[k]), "%s: street %v: got %v, want %v", query, k, got[k], s)
	}
}

// TestPartsAreNotCompressed checks that the cells that lie completely within a tile are sent in the
// document's forms.
func TestPartsAreNotCompressed(t *testing.T) {
	l := served(t, 10_000)
	r := response{snapshot: l.current.Load(), document: l.current.Load().zones["UTC"][0], encoding: gzipped}
	at := placeOf(12.6, 55.65)
	shared := 0
	for _, p := range r.selected(&query{within: "tile", area: tileArea(9, at.x>>23, at.y>>23)}) {
		if slices.Contains(r.document.pieces, p) {
			shared++
		}
	}
	require.Greater(t, shared, 5)
}

// TestFormsAreMadeOnce checks that a form is made only once if several requests need it at the same
// time.
func TestFormsAreMadeOnce(t *testing.T) {
	l := served(t, 100)
	p := l.current.Load().zones["UTC"][0].pieces[0]
	const requests = 20
	var made [requests]*form
	var wait sync.WaitGroup
	start := make(chan struct{})
	for i := range requests {
		wait.Go(func() {
			<-start
			made[i] = p.form(jsonText, gzipped)
		})
	}
	close(start)
	wait.Wait()
	for _, m := range made {
		require.True(t, made[0] == m)
	}
}

// TestMemoryOfParts checks that a client that does not read the parts made for its requests gets
// 503 when they exceed its quota, and that this affects neither other clients nor other requests.
func TestMemoryOfParts(t *testing.T) {
	l := served(t, 2_000)
	l.made = admission.New(1_000_000, memory)
	whole, _ := get(l, client("UTC"), "")
	other := client("UTC")
	other.Owner = "other"
	request := func(c *contract.Client, query string) (*fasthttp.RequestCtx, error) {
		return get(l, c, query, "Accept", "application/json")
	}
	const box = "?bbox=12.5,55.6,12.6,55.7"
	f := func(query string) {
		t.Helper()
		var unread []*fasthttp.RequestCtx
		var err error
		for range 100 {
			var ctx *fasthttp.RequestCtx
			if ctx, err = request(client("UTC"), query); err != nil {
				break
			}
			unread = append(unread, ctx)
		}
		require.ErrorContains(t, err, "more than its quota")
		require.Greater(t, l.made.Total(), int64(500_000))
		require.Less(t, l.made.Total(), int64(900_000))
		for _, c := range []struct {
			client *contract.Client
			query  string
		}{{other, query}, {client("UTC"), ""}} {
			ctx, err := request(c.client, c.query)
			require.NoError(t, err)
			require.NoError(t, ctx.Response.CloseBodyStream())
		}
		for _, ctx := range unread {
			require.NoError(t, ctx.Response.CloseBodyStream())
		}
		require.Zero(t, l.made.Total())
		ctx, err := request(client("UTC"), query)
		require.NoError(t, err)
		require.NoError(t, ctx.Response.CloseBodyStream())
	}
	f(box)
	f("?street=1001,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011,1012,1013,1014,1015,1016,1017,1018,1019,1020")
	l.Put(forecast(1001, 1, noon, 6, 1))
	for _, s := range city(2_000, noon)[:900] {
		s.Forecast[0].Speed++
		l.Put(s)
	}
	rebuild(l, noon)
	f(box + "&since=" + header(whole, "ETag"))
}

// changeFirst changes the first n streets of a city.
func changeFirst(l *Layer, n int) {
	for _, s := range city(n, noon) {
		s.Forecast[0].Speed = float64(l.current.Load().number + 1)
		l.Put(s)
	}
	rebuild(l, noon)
}

// unreadJSON requests the layer as JSON. The caller must read the response.
func unreadJSON(l *Layer, c *contract.Client, query string, headers ...string) (ctx *fasthttp.RequestCtx, size int, err error) {
	ctx, err = get(l, c, query, append(headers, "Accept", "application/json")...)
	return ctx, ctx.Response.Header.ContentLength(), err
}

// read reads responses to the end.
func read(t *testing.T, responses ...*fasthttp.RequestCtx) {
	t.Helper()
	for _, ctx := range responses {
		require.NoError(t, ctx.Response.CloseBodyStream())
	}
}

// TestEarlierLayersInMemory checks that a client that reads too much of earlier layers gets no
// further bodies, and that other clients do.
func TestEarlierLayersInMemory(t *testing.T) {
	l := served(t, 2_000)
	c, other := client("UTC"), client("UTC")
	other.Owner = "other"
	first, size, err := unreadJSON(l, c, "")
	require.NoError(t, err)
	require.Greater(t, size, maxJoinedSize)
	l.earlierLimit = size + size/2
	again, _, err := unreadJSON(l, c, "")
	require.NoError(t, err)
	changeFirst(l, 2_000)
	second, _, err := unreadJSON(l, c, "")
	require.NoError(t, err, "two responses with one earlier body")
	l.build(noon)
	horizon, _, err := unreadJSON(l, c, "?horizon=15")
	require.NoError(t, err, "the build did not change the layer")
	changeFirst(l, 2_000)
	_, _, err = unreadJSON(l, c, "")
	require.ErrorContains(t, err, "still reading")
	current, _, err := unreadJSON(l, other, "")
	require.NoError(t, err)
	unmodified, _, err := unreadJSON(l, c, "", "If-None-Match", header(current, "ETag"))
	require.NoError(t, err)
	require.Equal(t, 304, unmodified.Response.StatusCode())
	read(t, first, horizon)
	_, _, err = unreadJSON(l, c, "")
	require.ErrorContains(t, err, "still reading", "another response has the same body")
	read(t, again)
	last, _, err := unreadJSON(l, c, "")
	require.NoError(t, err)
	read(t, second, current, last)
	require.Empty(t, l.unread[c.Owner])
}

// TestDroppedFormsInMemory checks that a body that is dropped because no client has requested it
// for KeepForms counts as one of an earlier layer.
func TestDroppedFormsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.KeepForms = time.Minute
		l, c := running(t, cfg), client("UTC")
		for i := range int32(2_000) {
			f := forecast(i, 1, time.Now(), 1, 50)
			f.Forecast[0].End = time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
			l.Put(f)
		}
		l.Publish(time.Now())
		sleep(time.Second)
		var unread []*fasthttp.RequestCtx
		for range 2 {
			ctx, size, err := unreadJSON(l, c, "?horizon=15")
			require.NoError(t, err)
			require.Greater(t, size, maxJoinedSize)
			l.earlierLimit = size + size/2
			unread = append(unread, ctx)
			version := header(ctx, "Forecast-Version")
			for range 3 { // protobuf is still requested
				sleep(time.Minute)
				ctx, err = get(l, c, "?horizon=15&since="+version)
				require.NoError(t, err)
				require.Equal(t, version, header(ctx, "Forecast-Version"))
				read(t, ctx)
			}
		}
		_, _, err := unreadJSON(l, c, "?horizon=15")
		require.ErrorContains(t, err, "still reading")
		read(t, unread...)
	})
}

// TestEarlierPartsInMemory checks that any number of responses with parts of an earlier layer, or
// with changes, count as the memory that they share.
func TestEarlierPartsInMemory(t *testing.T) {
	l, c := served(t, 2_000), client("UTC")
	whole, size, err := unreadJSON(l, c, "")
	require.NoError(t, err)
	read(t, whole)
	l.earlierLimit = size + size/2
	var unread []*fasthttp.RequestCtx
	f := func(query string) {
		t.Helper()
		for range 10 {
			part, n, err := unreadJSON(l, c, query)
			require.NoError(t, err)
			require.Greater(t, n, size/4)
			unread = append(unread, part)
		}
	}
	const part = "?bbox=12.5,55,13,56"
	f(part)
	_, _, version, _ := shownIn(t, l, "")
	changeFirst(l, 900)
	f("?since=" + version)
	f(part)
	require.Less(t, int(l.made.Total()), size/2)
	changeFirst(l, 2_000)
	_, _, err = unreadJSON(l, c, part)
	require.ErrorContains(t, err, "still reading")
	read(t, unread...)
	require.Empty(t, l.unread[c.Owner])
	require.Zero(t, l.made.Total())
}

// TestChangesAreShared checks that a client is not charged for changes that other responses share.
func TestChangesAreShared(t *testing.T) {
	l := served(t, 2_000)
	_, _, version, _ := shownIn(t, l, "")
	changeFirst(l, 100)
	for range 3 {
		ctx, size, err := unreadJSON(l, client("UTC"), "?since="+version)
		require.NoError(t, err)
		require.Less(t, size, maxJoinedSize)
		defer read(t, ctx)
	}
	require.Zero(t, l.made.Total())
}

// TestMemoryOfChanges checks that a client that does not read the changes since many versions is
// charged for those that take more memory than the layer.
func TestMemoryOfChanges(t *testing.T) {
	l := served(t, 2_000)
	request := func(query string) *fasthttp.RequestCtx {
		ctx, err := get(l, client("UTC"), query, "Accept", "application/json")
		require.NoError(t, err)
		return ctx
	}
	var versions []string
	for version := range 12 {
		versions = append(versions, header(request(""), "Forecast-Version"))
		for _, s := range city(600, noon) {
			s.Forecast[0].Speed = float64(version)
			l.Put(s)
		}
		rebuild(l, noon)
	}
	unread := 0
	for _, version := range versions {
		ctx := request("?since=" + version)
		require.Equal(t, "changes", header(ctx, "Forecast-Content"))
		unread += ctx.Response.Header.ContentLength()
	}
	layer := request("").Response.Header.ContentLength()
	require.Greater(t, unread, 2*layer)
	require.Less(t, unread-int(l.made.Total()), layer)
}

// TestManyChangesAreNotFiltered checks that a client that follows a part gets the whole part, which
// is mostly prebuilt, if too many streets have changed.
func TestManyChangesAreNotFiltered(t *testing.T) {
	l := served(t, 2*maxFiltered+10)
	f := func(changed int, want string) {
		t.Helper()
		whole, err := get(l, client("UTC"), "")
		require.NoError(t, err)
		for _, s := range city(changed, noon) {
			s.Forecast[0].Speed += float64(changed)
			l.Put(s)
		}
		rebuild(l, noon)
		for _, part := range []string{"tile=11/1095/641", "street=1001", "bbox=12.5,55.6,12.6,55.7"} {
			ctx, err := get(l, client("UTC"), "?"+part+"&since="+header(whole, "ETag"))
			require.NoError(t, err)
			require.Equal(t, want, header(ctx, "Forecast-Content"), part)
			require.NoError(t, ctx.Response.CloseBodyStream())
		}
	}
	f(maxFiltered, "changes")
	f(maxFiltered+1, "whole")
}

// TestPartsAreMadeInTurn checks that the requests of one client for parts do not delay those of
// another.
func TestPartsAreMadeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := served(t, 500)
		l.turns = turns.New(1, 1, math.MaxInt)
		l.turns.Take("busy")
		done := make(chan string, 10)
		ask := func(owner string) {
			c := client("UTC")
			c.Owner = owner
			go func() {
				_, err := get(l, c, "?bbox=12.5,55.6,12.6,55.7")
				require.NoError(t, err)
				done <- owner
			}()
			synctest.Wait()
		}
		for range cap(done) - 1 {
			ask("busy")
		}
		ask("other")
		require.Empty(t, done)
		judged := make(chan struct{})
		go func() {
			l.turns.Take("judge")
			close(judged)
		}()
		synctest.Wait()
		l.turns.Release("busy")
		<-judged
		synctest.Wait() // until those that had their turn before the judge have ended
		require.ElementsMatch(t, []string{"busy", "other"}, []string{<-done, <-done})
		require.Empty(t, done)
		l.turns.Release("judge")
		for range cap(done) - 2 {
			<-done
		}
	})
}

// TestSinceWithoutCodes checks that the changes contain the code of a street unless all clients
// with the version have it.
func TestSinceWithoutCodes(t *testing.T) {
	const street = 1001
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	put := func(now, from, periods int) func(*Layer) {
		return func(l *Layer) {
			l.Put(forecast(street, 1, at(from), periods, float64(now)))
			l.Publish(at(now))
			l.build(at(now))
		}
	}
	build := func(now int) func(*Layer) { return func(l *Layer) { l.build(at(now)) } }
	remove := func(l *Layer) {
		l.Remove(street, 1)
		rebuild(l, noon)
	}
	f := func(title, query, wantCode string, steps ...func(l *Layer)) {
		t.Helper()
		l := builtAt(0, noon)
		for i := range int32(100) { // other streets, which show the same period at all times
			other := forecast(2000+i, 1, noon, 1, 1)
			other.Forecast[0].End = noon.Add(8 * time.Hour).Format(time.RFC3339)
			l.Put(other)
		}
		put(0, 0, 8)(l)
		_, _, version, _ := shownIn(t, l, query)
		for _, step := range steps {
			if step == nil {
				_, _, version, _ = shownIn(t, l, query)
				continue
			}
			step(l)
		}
		separator := map[bool]string{true: "?", false: "&"}[query == ""]
		got, _, _, content := shownIn(t, l, query+separator+"since="+url.QueryEscape(version))
		require.Equal(t, "changes", content, title)
		require.Equal(t, wantCode, got[key{street, 1}].GetOpenLRcode(), title)
	}
	var refresh func(*Layer) // nil: the client requests the layer again
	code := codeOf(street)
	for _, query := range []string{"", "?horizon=0", "?horizon=60"} {
		f("other speeds", query, "", put(1, 0, 8))
		f("other speeds twice", query, "", put(1, 0, 8), put(20, 15, 8))
		f("removed in between", query, code, remove, put(1, 0, 8))
	}
	f("the end of a period", "?horizon=0", "", build(15))
	f("an end before the longest horizon, which did not show the street", "?horizon=60", code, put(1, 0, 4), put(2, 0, 8))
	f("the first period begins", "?horizon=0", code, put(1, 20, 8), refresh, build(21))
	f("a time without a period", "?horizon=0", code, put(1, 30, 8), put(2, 0, 8))
	f("the clock was set back to before the periods", "?horizon=0", code, put(30, 30, 8), build(0), refresh, put(31, 30, 9))
}

// TestSinceUnknown checks that a client gets the whole layer if its version is unknown or too old,
// or if too much has changed since.
func TestSinceUnknown(t *testing.T) {
	l := served(t, 1000)
	all, _, version, _ := shownIn(t, l, "")
	f := func(since, wantContent string, want int) {
		t.Helper()
		got, etag, _, content := shownIn(t, l, "?since="+url.QueryEscape(since))
		require.Equal(t, wantContent, content)
		require.Len(t, got, want)
		_, whole, _, _ := shownIn(t, l, "")
		require.Equal(t, "W/"+whole, etag)
	}
	f(version, "changes", 0)
	f(strings.Replace(version, `"`, `W/"`, 1), "changes", 0)
	f(strings.TrimSuffix(version, `"`)+`-jg"`, "changes", 0)
	f(strings.Trim(version, `"`), "changes", 0)
	f(strings.Trim(version, `"`)+"-jg", "changes", 0)
	f("0123456789abcdef", "whole", len(all))
	f(`"0123456789abcdef"`, "whole", len(all))
	_, _, otherHorizon, _ := shownIn(t, l, "?horizon=15")
	f(otherHorizon, "whole", len(all))
	l.Prepare([]*contract.Client{client("UTC"), client("Asia/Tokyo")})
	ctx, err := get(l, client("Asia/Tokyo"), "")
	require.NoError(t, err)
	f(header(ctx, "Forecast-Version"), "whole", len(all))

	l.Put(forecast(1000, 77, noon, 6, 1))
	rebuild(l, noon)
	f(version, "changes", 1)
	change := func(streets int, speed float64) {
		for i := range int32(streets) {
			l.Put(forecast(1000+i, 77, noon, 6, speed))
		}
		rebuild(l, noon)
	}
	change(len(all), 8) // new streets: half of the layer
	f(version, "changes", len(all))
	change(len(all)+1, 9)
	f(version, "whole", 2*len(all)+1)
	_, _, version, _ = shownIn(t, l, "")
	l.Put(forecast(1000, 77, noon, 6, 3))
	rebuild(l, noon.Add(time.Minute))
	f(version, "changes", 1)
	other := forecast(1000, 77, noon, 6, 3)
	other.OpenLRcode = codeOf(1001)
	l.Put(other)
	rebuild(l, noon.Add(time.Minute))
	f(version, "whole", 2*len(all)+1)
	_, _, version, _ = shownIn(t, l, "")
	rebuild(l, noon.Add(keepVersions+2*time.Minute))
	_, _, _, content := shownIn(t, l, "?since="+url.QueryEscape(version))
	require.Equal(t, "whole", content)
}

// TestSinceComparesWhatIsShown checks that a client that follows a horizon gets only the streets
// that show something else there, even if most streets have changed in later periods, and if a
// period ends.
func TestSinceComparesWhatIsShown(t *testing.T) {
	l := served(t, 1000)
	versions := map[string]string{}
	f := func(query, wantContent string, want int) {
		t.Helper()
		separator := map[bool]string{true: "?", false: "&"}[query == ""]
		got, _, _, content := shownIn(t, l, query+separator+"since="+versions[query])
		require.Equal(t, wantContent, content, query)
		require.Len(t, got, want, query)
	}
	know := func() {
		for _, query := range []string{"", "?horizon=0", "?horizon=60"} {
			versions[query] = strings.Trim(header(must(get(l, client("UTC"), query)), "Forecast-Version"), `"`)
		}
	}
	know()
	for i, s := range city(1000, noon) {
		s.Forecast[5].Speed++ // from 13:15, which no horizon reaches
		if i < 10 {
			s.Forecast[0].Speed++
		}
		l.Put(s)
	}
	rebuild(l, noon)
	f("", "whole", 1000)
	f("?horizon=0", "changes", 10)
	f("?horizon=60", "changes", 0)

	know()
	for street := range int32(3) { // until 12:30
		l.Put(forecast(5000+street, 1, noon.Add(-time.Hour), 6, 1))
	}
	for _, s := range city(1000, noon)[:4] {
		s.Forecast = s.Forecast[1:]
		l.Put(s)
	}
	rebuild(l, noon.Add(time.Minute))
	f("", "changes", 7)
	f("?horizon=0", "changes", 7)
	f("?horizon=60", "changes", 0)
	rebuild(l, noon.Add(2*time.Minute))
	f("?horizon=0", "changes", 7)
	rebuild(l, noon.Add(16*time.Minute))
	f("?horizon=0", "whole", 1003)
}

func must(ctx *fasthttp.RequestCtx, err error) *fasthttp.RequestCtx {
	if err != nil {
		panic(err)
	}
	return ctx
}

// TestSinceIsWeak checks that a response to since has a weak ETag and supports no ranges, because
// the bytes are not the same on every replica.
func TestSinceIsWeak(t *testing.T) {
	l := served(t, 1000)
	_, old, _, _ := shownIn(t, l, "")
	l.Put(forecast(1000, 77, noon, 6, 1))
	rebuild(l, noon)
	_, strong, _, _ := shownIn(t, l, "")
	f := func(since string, wantStatus int, headers ...string) {
		t.Helper()
		ctx, err := get(l, client("UTC"), "?since="+url.QueryEscape(since), headers...)
		require.NoError(t, err)
		require.Equal(t, wantStatus, ctx.Response.StatusCode())
		require.Equal(t, "W/"+strong, header(ctx, "ETag"))
		require.Empty(t, header(ctx, "Accept-Ranges"))
	}
	for _, since := range []string{old, strong, "W/" + strong, `"0123456789abcdef"`} {
		f(since, 200)
		f(since, 200, "Range", "bytes=0-1")
		f(since, 200, "Range", "bytes=0-1", "If-Range", strong)
		f(since, 304, "If-None-Match", strong)
		f(since, 304, "If-None-Match", "W/"+strong)
		f(since, 412, "If-Match", strong)
		f(since, 412, "If-Match", "W/"+strong)
		f(since, 200, "If-Match", "*")
	}
}

// TestManyRemovals checks that the builder keeps a bounded number of removals.
func TestManyRemovals(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxStreets = 1000
	l := prepared(cfg)
	publish := func(fromnode int32, streets int32) string {
		var all []*pb.StreetForecast
		for street := range streets {
			all = append(all, forecast(street, fromnode, noon, 1, 1))
		}
		replace(l, all)
		rebuild(l, noon)
		_, _, version, _ := shownIn(t, l, "")
		return version
	}
	content := func(version string) string {
		_, _, _, content := shownIn(t, l, "?since="+url.QueryEscape(version))
		return content
	}
	first := publish(1, 900)
	require.Equal(t, "changes", content(first))
	second := publish(1, 890)
	require.Equal(t, "changes", content(first))
	for fromnode := range int32(3) {
		publish(2+fromnode, 890)
	}
	last := publish(1, 890)
	require.Equal(t, second, last)
	require.LessOrEqual(t, len(l.current.Load().numbered), 2*cfg.MaxStreets)
	require.Equal(t, "whole", content(first))
	require.Equal(t, "changes", content(second), "the version is current again")
}

// TestSinceWithMoreThanMaxStreets checks that forecasts that were never in the layer are not sent
// as removed streets, which could make the changes larger than the limit.
func TestSinceWithMoreThanMaxStreets(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxStreets = 200
	l := prepared(cfg)
	publish := func(speed float64) string {
		all := []*pb.StreetForecast{forecast(1, 1, noon, 1, speed)}
		for street := range int32(299) {
			all = append(all, forecast(2+street, 1, noon, 1, 1))
		}
		replace(l, all)
		rebuild(l, noon)
		_, _, version, _ := shownIn(t, l, "")
		return version
	}
	version := publish(50)
	publish(60)
	streets, _, _, content := shownIn(t, l, "?since="+url.QueryEscape(version))
	require.Equal(t, "changes", content)
	require.Len(t, streets, 1)

	l.Put(forecast(0, 1, noon, 1, 1)) // in place of street 200
	rebuild(l, noon)
	streets, _, _, _ = shownIn(t, l, "?since="+url.QueryEscape(version))
	require.Len(t, streets, 3)
	require.Empty(t, streets[key{200, 1}].Forecast)
}

// TestSinceNewerThanLayer checks that a request gets the whole layer if a layer is built just
// before its changes are looked up, and its version is the new one.
func TestSinceNewerThanLayer(t *testing.T) {
	l := served(t, 1000)
	q := query{follows: true}
	r, apiErr := l.find(client("UTC"), &fasthttp.RequestHeader{}, &q, noon)
	require.Nil(t, apiErr)
	l.Put(forecast(1000, 77, noon, 6, 1))
	rebuild(l, noon)
	q.since = l.current.Load().zones["UTC"][0].sum
	require.False(t, r.follow(&q), "without changes, the client would take its streets for those of the earlier layer")
}

// TestClockIsSetBackDuringRequests sets the clock back while clients get changes. The race detector
// finds unprotected fields of the streets.
func TestClockIsSetBackDuringRequests(t *testing.T) {
	l := served(t, 200)
	_, _, version, _ := shownIn(t, l, "")
	for _, s := range city(20, noon) {
		s.Forecast[0].Speed++
		l.Put(s)
	}
	rebuild(l, noon)
	var builds sync.WaitGroup
	builds.Go(func() {
		for i := range 300 {
			l.build(noon.Add(time.Duration(-i) * time.Minute))
		}
	})
	for i := range 300 {
		_, _, _, content := shownIn(t, l, fmt.Sprintf("?since=%s&street=%d", version, 1000+i%50))
		require.Equal(t, "changes", content)
	}
	builds.Wait()
}

func TestBadQueries(t *testing.T) {
	l := served(t, 10)
	f := func(query, parameter string) {
		t.Helper()
		_, err := get(l, client("UTC"), query)
		var apiErr *contract.APIError
		require.True(t, errors.As(err, &apiErr), query)
		require.Equal(t, contract.InvalidParameter, apiErr.Code)
		require.Equal(t, parameter, apiErr.Parameter)
	}
	for _, tile := range []string{"", "5/0/0", "15/0/0", "6/64/0", "6/0/64", "6/0", "6/0/0/0", "6/-1/0", "6/x/0", "6.0/0/0", "99999/0/0"} {
		f("?tile="+tile, "tile")
	}
	for _, box := range []string{"", "1,2,3", "1,2,3,4,5", "3,2,1,4", "1,4,3,2", "-181,0,0,0", "0,-91,0,0", "0,0,181,0", "0,0,0,91", "NaN,0,1,1", "a,0,1,1", "0,0,Inf,1", "0x1p-2,0,1,1", "0,0,1,0X1P0", "1_0,0,11,1"} {
		f("?bbox="+box, "bbox")
	}
	for _, street := range []string{"", "x", "1,", "2147483648", "1.5", strings.Repeat("1,", 100) + "1"} {
		f("?street="+street, "street")
	}
	for _, since := range []string{"", "x", "%22x%22", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg"} {
		f("?since="+since, "since")
	}
	f("?since=%220123456789abcdef%22&since=%220123456789abcdef%22", "since")
	f("?street=1&street=2", "street")
	f("?fields=", "fields")
	f("?fields=speed_low", "fields")
	f("?fields=all&fields=all", "fields")
	f("?tile=6/0/0&bbox=0,0,1,1", "bbox")
	f("?street=1&tile=6/0/0", "tile")
}

// TestOptionalMembers checks that only fields=all shows the optional members, that the layer
// without them is the same as if the feed did not have them, and that clients of either that follow
// the layer receive a change of theirs.
func TestOptionalMembers(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	l, without := prepared(DefaultConfig()), prepared(DefaultConfig())
	known := map[key]*pb.StreetForecast{}
	for _, f := range city(300, noon) {
		without.Put(clones([]*pb.StreetForecast{f})[0])
		known[key{f.Street, f.Fromnode}] = extend(f, random)
		l.Put(clones([]*pb.StreetForecast{f})[0])
	}
	for _, l := range []*Layer{l, without} {
		l.Publish(noon)
		rebuild(l, noon)
	}
	requireSame(t, l, without)
	all, etag, version, _ := shownIn(t, l, "?fields=all")
	for k, f := range known {
		for _, p := range f.Forecast {
			p.Timezone = "UTC"
		}
		require.True(t, proto.Equal(f, all[k]), "%v\n%v", f, all[k])
	}
	_, plain, _, _ := shownIn(t, l, "")
	require.NotEqual(t, plain, etag)
	_, plain, _, _ = shownIn(t, without, "")
	_, etag, _, _ = shownIn(t, without, "?fields=all")
	require.Equal(t, plain, etag, "nothing to show")

	changed := city(300, noon)[0]
	k := key{changed.Street, changed.Fromnode}
	f := proto.Clone(known[k]).(*pb.StreetForecast)
	f.Length = proto.Float64(7)
	l.Put(f)
	l.Publish(noon)
	rebuild(l, noon)
	got, _, _, content := shownIn(t, l, "?fields=all&since="+url.QueryEscape(version))
	require.Equal(t, "changes", content)
	require.Len(t, got, 1)
	require.InDelta(t, 7, got[k].GetLength(), 0)
	requireSame(t, l, without)
}

// TestWait checks that a request with Prefer: wait gets the next version as soon as it is built, or
// no changes after the timeout. It gets a response immediately if its version is not the current
// one, if too many requests are waiting, or if the daemon drains.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.MaxWaiting = 2
		l := running(t, cfg)
		put := func(speed float64) {
			l.Put(forecast(1, 1, time.Now(), 4, speed))
			l.Publish(time.Now())
		}
		replace(l, []*pb.StreetForecast{forecast(2, 1, time.Now(), 100, 1)})
		put(1)
		sleep(2 * time.Second)
		version := func() string {
			_, _, v, _ := shownIn(t, l, "")
			return v
		}
		type result struct {
			elapsed time.Duration
			streets int
			applied string
		}
		keys, owner := 0, "one"
		ask := func(since, prefer string) chan result {
			keys++
			c := client("UTC")
			c.Name, c.Owner = fmt.Sprint(keys), owner
			done := make(chan result, 1)
			go func() {
				start := time.Now()
				ctx, err := get(l, c, "?since="+url.QueryEscape(since), "Prefer", prefer)
				if err != nil {
					t.Error(err)
				}
				done <- result{time.Since(start), len(layerOf(t, ctx).StreetForecast), header(ctx, "Preference-Applied")}
			}()
			return done
		}
		first := version()
		require.Equal(t, result{10 * time.Second, 0, "wait=10"}, <-ask(first, "respond-async, wait=10; x=y"))
		require.Equal(t, result{time.Minute, 0, "wait=60"}, <-ask(first, "wait=3600"))
		require.Equal(t, result{}, <-ask(first, "wait=soon"))
		require.Equal(t, result{}, <-ask(first, "return=minimal"))
		waiting, another := ask(first, "wait=30"), ask(first, "WAIT=\"30\"")
		sleep(5 * time.Second)
		require.Equal(t, result{}, <-ask(first, "wait=30"), "two requests of the owner, with other keys, are waiting")
		owner = "another"
		other := ask(first, "wait=30")
		synctest.Wait()
		put(2)
		require.Equal(t, result{5 * time.Second, 1, "wait=30"}, <-waiting)
		require.Equal(t, result{5 * time.Second, 1, "wait=30"}, <-another)
		require.Equal(t, result{0, 1, "wait=30"}, <-other)
		require.Equal(t, result{0, 1, ""}, <-ask(first, "wait=30"), "the version is not the current one")
		waiting = ask(version(), "wait=30")
		sleep(time.Second)
		l.Drain()
		require.Equal(t, result{time.Second, 0, "wait=30"}, <-waiting)
		require.Equal(t, result{time.Second, 0, "wait=30"}, <-ask(version(), "wait=30"), "no loop of requests")
	})
}

func TestPreferredWait(t *testing.T) {
	f := func(want int, lines ...string) {
		t.Helper()
		h := &fasthttp.RequestHeader{}
		for _, line := range lines {
			h.Add("Prefer", line)
		}
		require.Equal(t, want, preferredWait(h), "%q", lines)
	}
	f(0)
	f(0, "")
	f(0, "return=minimal")
	f(0, "wait")
	f(0, "wait=soon")
	f(0, "wait=-1")
	f(30, "wait=30")
	f(30, `respond-async, WAIT = "30"; x=y`)
	f(30, "return=minimal", "wait=30")
	f(30, "wait=30, wait=20") // the first one counts
	f(60, "wait=3600")
	f(0, `x="a, wait=20"`)
	f(30, `x="a, wait=20", wait=30`)
	f(30, `x="a\", wait=20", wait=30`)
	f(30, `x; y="b; wait=20, z", wait=30; z="a, b"`)
}

// TestWaitKeepsNoLayer checks that a waiting request does not keep a layer in memory after an equal
// one has replaced it.
func TestWaitKeepsNoLayer(t *testing.T) {
	l := served(t, 100)
	_, _, version, _ := shownIn(t, l, "")
	before := weakref.Make(l.current.Load())
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if _, err := get(l, client("UTC"), "?since="+url.QueryEscape(version), "Prefer", "wait=60"); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		l.clients.Lock()
		defer l.clients.Unlock()
		return l.waiting[""] == 3
	}, time.Minute, time.Millisecond)
	l.build(noon)
	require.Eventually(t, func() bool {
		runtime.GC()
		return before.Value() == nil
	}, time.Minute, 10*time.Millisecond)
	l.Drain()
	wait.Wait()
}

// TestUnusedForms checks that a form is dropped when no client has requested it for KeepForms, and
// made again for the next request.
func TestUnusedForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		replace(l, []*pb.StreetForecast{forecast(2, 1, time.Now(), 20, 1)})
		l.Publish(time.Now())
		sleep(time.Second)
		made := func() (list []string) {
			d := l.current.Load().zones["UTC"][0]
			for f, e := range variants {
				require.Equal(t, d.bodies[f][e].Load() != nil, d.pieces[0].forms[f][e].Load() != nil)
				if d.bodies[f][e].Load() != nil {
					list = append(list, etagSuffix[f][e])
				}
			}
			return list
		}
		require.Empty(t, made())
		_, err := get(l, client("UTC"), "", "Accept-Encoding", "gzip")
		require.NoError(t, err)
		before, err := get(l, client("UTC"), "", "Accept", "application/json")
		require.NoError(t, err)
		require.Equal(t, []string{"-g", "-j"}, made())
		sleep(50 * time.Minute)
		_, err = get(l, client("UTC"), "", "Accept", "application/json")
		require.NoError(t, err)
		sleep(50 * time.Minute)
		require.Equal(t, []string{"-j"}, made(), "no request for gzip")
		l.Put(forecast(2, 1, time.Now(), 20, 2))
		l.Publish(time.Now())
		sleep(time.Second)
		require.Equal(t, []string{"-j"}, made(), "built in advance")
		later, err := get(l, client("UTC"), "", "Accept", "application/json")
		require.NoError(t, err)
		require.NotEqual(t, before.Response.Body(), later.Response.Body())
		sleep(2 * time.Hour)
		require.Empty(t, made())
		d := l.current.Load().zones["UTC"][1]
		require.Nil(t, d.bodies[protobuf][gzipped].Load(), "the form of horizons that is made without a request must also be dropped")
		ctx, err := get(l, client("UTC"), "", "Accept-Encoding", "gzip")
		require.NoError(t, err)
		require.Len(t, layerOf(t, ctx).StreetForecast, 1)
	})
}

// TestFormsAreKept checks that a client that repeats its request every minute keeps the form with
// the minimum of KeepForms.
func TestFormsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.KeepForms = time.Minute
		l := running(t, cfg)
		l.Put(forecast(2, 1, time.Now(), 20, 1))
		l.Publish(time.Now())
		sleep(time.Second)
		for range 30 {
			_, err := get(l, client("UTC"), "?horizon=15", "Accept", "application/json")
			require.NoError(t, err)
			sleep(time.Minute)
			require.NotNil(t, l.current.Load().zones["UTC"][2].bodies[jsonText][identity].Load())
		}
	})
}

// TestPartsKeepForms checks that requests for tiles and bounding boxes keep the forms of the layer
// that they use.
func TestPartsKeepForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, DefaultConfig())
		replace(l, []*pb.StreetForecast{forecast(2, 1, time.Now(), 40, 1)})
		l.Publish(time.Now())
		sleep(time.Second)
		kept := func(query string) bool {
			for range 3 {
				streets, _, _, _ := shownIn(t, l, query, "Accept-Encoding", "gzip")
				require.Len(t, streets, 1)
				sleep(50 * time.Minute)
			}
			return l.current.Load().zones["UTC"][0].pieces[0].forms[protobuf][gzipped].Load() != nil
		}
		require.False(t, kept("?street=2"))
		require.True(t, kept("?bbox=12,55,13,56"))
	})
}

// TestNewMinute counts the pieces that are built for a new minute, because making their forms is
// most of the work. Usually there are none. At the end of a period each horizon reuses the pieces
// of the next longer one, so that they are built only for the longest horizon and for the whole
// layer.
func TestNewMinute(t *testing.T) {
	before := testutil.ToFloat64(piecesBuilt)
	built := func() int {
		last := before
		before = testutil.ToFloat64(piecesBuilt)
		return int(before - last)
	}
	l := builtAt(1000, noon)
	horizons, cells := len(DefaultConfig().Horizons), len(l.current.Load().cells)
	require.Equal(t, (1+horizons)*cells, built())
	documents := l.current.Load().zones["UTC"]
	l.build(noon.Add(time.Minute))
	require.Zero(t, built())
	require.Equal(t, documents, l.current.Load().zones["UTC"])
	l.build(noon.Add(15 * time.Minute))
	require.Equal(t, 2*cells, built())
	require.Nil(t, l.current.Load().zones["UTC"][0].bodies[protobuf][gzipped].Load(), "no client has requested the whole layer")
	l.build(noon.Add(16 * time.Minute))
	require.Zero(t, built())
	l.build(noon.Add(30 * time.Minute))
	requireSame(t, builtAt(1000, noon.Add(30*time.Minute)), l)
	l.build(noon) // the clock is set back
	requireSame(t, builtAt(1000, noon), l)
}

// builtAt returns a layer of n streets with periods until 14:00.
func builtAt(n int32, now time.Time) *Layer {
	l := prepared(DefaultConfig())
	for i := range n {
		l.Put(forecast(1000+i, 1, noon, 8, float64(i)))
	}
	rebuild(l, now)
	return l
}

// TestBodiesAreMadeOnRequest checks that a body that no client has requested for KeepForms is made
// by the first of several concurrent requests, and that it is then the same as if every build had
// included it.
func TestBodiesAreMadeOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at the start of a period
		cfg := DefaultConfig()
		cfg.KeepForms = time.Minute
		l, always := prepared(cfg), prepared(DefaultConfig())
		now := time.Now()
		all := city(500, now.Truncate(15*time.Minute))
		update := func(at time.Time) {
			for _, layer := range []*Layer{l, always} {
				for _, f := range clones(all) {
					layer.Put(f)
				}
				rebuild(layer, at)
			}
		}
		body := func(view int) *body { return l.current.Load().zones["UTC"][view].bodies[protobuf][gzipped].Load() }
		same := func(query string) {
			t.Helper()
			got, err := get(l, client("UTC"), query, "Accept-Encoding", "gzip")
			require.NoError(t, err)
			want, err := get(always, client("UTC"), query, "Accept-Encoding", "gzip")
			require.NoError(t, err)
			require.NotEmpty(t, want.Response.Body())
			require.Equal(t, want.Response.Body(), got.Response.Body())
			require.Equal(t, header(want, "ETag"), header(got, "ETag"))
		}
		update(now)
		require.Nil(t, body(0))
		require.NotNil(t, body(1), "horizons must be built in advance")
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() { same("") })
		}
		clients.Wait()

		all[7].Forecast[5].Speed++
		update(now.Add(time.Second))
		require.NotNil(t, body(0))
		same("")
		update(now.Add(3 * time.Minute))
		require.Nil(t, body(0))
		require.Nil(t, body(1))
		same("?horizon=15")
		same("")
	})
}

// TestUnmodifiedChanges checks that a replica that would send the whole layer does not say so in a
// 304: a cache would take the changes that it has stored for the whole layer.
func TestUnmodifiedChanges(t *testing.T) {
	all := city(100, noon)
	l, other := prepared(DefaultConfig()), prepared(DefaultConfig())
	replace(l, clones(all))
	rebuild(l, noon)
	_, _, version, _ := shownIn(t, l, "")
	all[7].Forecast[5].Speed++
	for _, layer := range []*Layer{l, other} { // other does not know the version
		replace(layer, clones(all))
		rebuild(layer, noon.Add(time.Second))
	}
	_, etag, _, content := shownIn(t, l, "?since="+version)
	require.Equal(t, "changes", content)
	_, _, _, content = shownIn(t, other, "?since="+version)
	require.Equal(t, "whole", content)
	for name, condition := range map[string]string{"If-None-Match": etag, "If-Modified-Since": noon.Add(time.Minute).UTC().Format(http.TimeFormat)} {
		ctx, err := get(other, client("UTC"), "?since="+version, name, condition)
		require.NoError(t, err)
		require.Equal(t, 304, ctx.Response.StatusCode())
		require.Empty(t, header(ctx, "Forecast-Content"))
	}
}

// TestRequestsDuringBuild checks that a body that is not made can be requested at any time during a
// build.
func TestRequestsDuringBuild(t *testing.T) {
	for i := range 20 {
		l := served(t, 10)
		replace(l, city(300, noon))
		l.Publish(noon)
		var build sync.WaitGroup
		build.Go(func() { l.build(noon) })
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		_, err := get(l, client("UTC"), "")
		build.Wait()
		require.NoError(t, err)
		streets, _, _, _ := shownIn(t, l, "")
		require.Len(t, streets, 300)
	}
}
