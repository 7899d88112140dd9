// Package routing drives routing engines with the forecast layer.
package routing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/traffic/roads"
)

// engines returns the directory with the wheels of the engines, which contain programs. These need
// no Python; their modules would need a newer one than Debian has.
func engines(t *testing.T) (valhalla, osrm string) {
	t.Helper()
	const pins = "testdata/engines/requirements.txt"
	dir := foreign.Fetched(t, "engines", pins, func(dir string) {
		foreign.Fetch(t, "an environment for pip", "python3", "-m", "venv", filepath.Join(dir, "pip"))
		foreign.Fetch(t, "Valhalla and OSRM", filepath.Join(dir, "pip", "bin", "python"), "-m", "pip", "install", "--quiet", "--require-hashes",
			"--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--target", filepath.Join(dir, "lib"), "--requirement", pins)
	})
	return filepath.Join(dir, "lib", "valhalla"), filepath.Join(dir, "lib", "osrm")
}

// block is a street between two junctions, in one direction.
type block struct {
	Street      int          `json:"street_id"`
	FromNode    int          `json:"fromnode_id"`
	State       string       `json:"state"`
	Ways        []int64      `json:"ways"`
	Nodes       []int64      `json:"nodes"`
	Coordinates [][2]float64 `json:"coordinates"`

	kmh    float64
	closed bool
}

// world is a town, its daemon, and the file of matches.
type world struct {
	*daemontest.Trafficd
	dir, osm, feed, matches string
	blocks                  []*block
	pairs                   map[[2]int64]*block // the street of a pair of nodes
	nodes                   map[int64][2]float64
	at                      map[[2]int]int64 // nodes by position, in 1e-6 degrees
	random                  *rand.Rand
}

const key = "router"

func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	w := &world{
		dir: t.TempDir(), pairs: map[[2]int64]*block{}, nodes: map[int64][2]float64{}, at: map[[2]int]int64{}, random: rand.New(rand.NewPCG(5, 5)),
	}
	m := roads.Town(20, 1)
	w.osm = filepath.Join(w.dir, "town.osm.pbf")
	f, err := os.Create(w.osm)
	require.NoError(t, err)
	require.NoError(t, m.WritePBF(f))
	require.NoError(t, f.Close())
	for _, n := range m.Nodes {
		w.nodes[n.ID] = [2]float64{n.Lon, n.Lat}
		// Valhalla's junctions are up to 0.5 m beside the ends of its edges.
		p := position(n.Lon, n.Lat)
		for x := -6; x <= 6; x++ {
			for y := -6; y <= 6; y++ {
				if at := [2]int{p[0] + x, p[1] + y}; w.at[at] == 0 || x == 0 && y == 0 {
					w.at[at] = n.ID
				}
			}
		}
	}
	uses := map[int64]int{}
	for _, way := range m.Ways {
		for i, n := range way.Nodes {
			uses[n]++
			if i == 0 || i == len(way.Nodes)-1 {
				uses[n]++
			}
		}
	}
	for _, way := range m.Ways {
		oneway := false
		for _, tag := range way.Tags {
			oneway = oneway || tag == [2]string{"oneway", "yes"} || tag == [2]string{"junction", "roundabout"}
		}
		from := 0
		for i := 1; i < len(way.Nodes); i++ {
			if uses[way.Nodes[i]] < 2 {
				continue
			}
			nodes := way.Nodes[from : i+1]
			w.add(way.ID, nodes)
			if !oneway {
				back := make([]int64, 0, len(nodes))
				for n := range nodes {
					back = append(back, nodes[len(nodes)-1-n])
				}
				w.add(way.ID, back)
			}
			from = i
		}
	}
	var text bytes.Buffer
	for _, b := range w.blocks {
		require.NoError(t, json.NewEncoder(&text).Encode(b))
	}
	w.matches = filepath.Join(w.dir, "town.ndjson")
	require.NoError(t, os.WriteFile(w.matches, text.Bytes(), 0o600))

	w.Trafficd = daemontest.New(t, settings...)
	w.Keys(daemontest.KeyEntry(key, "forecast", "UTC"))
	w.feed = w.SetForecastFile("forecasts.ndjson")
	w.publish()
	w.Run().Await(http.StatusOK)
	w.AwaitLayer(key)
	return w
}

func position(lon, lat float64) [2]int {
	return [2]int{int(math.Round(lon * 1e6)), int(math.Round(lat * 1e6))}
}

func (w *world) add(way int64, nodes []int64) {
	b := &block{Street: len(w.blocks) + 1, FromNode: 1, State: "matched", Nodes: nodes, kmh: 20 + 50*w.random.Float64()}
	for i, n := range nodes {
		b.Coordinates = append(b.Coordinates, w.nodes[n])
		if i > 0 {
			b.Ways = append(b.Ways, way)
			w.pairs[[2]int64{nodes[i-1], n}] = b
		}
	}
	w.blocks = append(w.blocks, b)
}

// publish replaces the forecasts.
func (w *world) publish() {
	var text strings.Builder
	hour := time.Now().UTC().Truncate(time.Hour)
	for _, b := range w.blocks {
		fmt.Fprintf(&text, `{"street":%d,"fromnode":1,"forecast":[{"start":%q,"end":%q,"speed_valid":true,"speed":%.3f,"closed":%v}]}`+"\n",
			b.Street, hour.Format(time.RFC3339), hour.Add(6*time.Hour).Format(time.RFC3339), b.kmh, b.closed)
	}
	daemontest.ReplaceFile(w.T, w.feed, text.String())
}

// seconds returns the time that the layer gives a way along nodes, and its length in metres.
func (w *world) seconds(nodes []int64) (seconds, metres float64) {
	for i := 1; i < len(nodes); i++ {
		b := w.pairs[[2]int64{nodes[i-1], nodes[i]}]
		if b == nil {
			return math.NaN(), 0 // not along streets
		}
		p, q := w.nodes[nodes[i-1]], w.nodes[nodes[i]]
		length := 111_195 * math.Hypot((q[0]-p[0])*math.Cos(p[1]*math.Pi/180), q[1]-p[1])
		metres += length
		seconds += length / b.kmh * 3.6
	}
	return seconds, metres
}

// follow starts trafficctl route follow.
func (w *world) follow(args ...string) {
	w.T.Helper()
	c := w.command(args...)
	var log bytes.Buffer
	c.Stderr = &log
	w.start(c, &log)
}

func (w *world) command(args ...string) *exec.Cmd {
	return exec.Command(foreign.Trafficctl(w.T), append([]string{"route", "follow", w.matches, "--url", "http://" + w.API, "--key", key}, args...)...)
}

// start runs a program until the test ends.
func (w *world) start(c *exec.Cmd, log *bytes.Buffer) {
	w.T.Helper()
	p, err := launch.Start(c, nil)
	require.NoError(w.T, err)
	w.T.Cleanup(func() {
		_ = p.Kill()
		<-p.Done()
		if w.T.Failed() {
			w.T.Logf("log of %s:\n%s", c.Path, daemontest.LastBytes(log.Bytes(), 3000))
		}
	})
}

// program runs a program in the directory of the world.
func (w *world) program(name string, args ...string) {
	w.T.Helper()
	c := exec.Command(name, args...)
	c.Dir = w.dir
	out, err := c.CombinedOutput()
	require.NoError(w.T, err, "%s\n%s", c, daemontest.LastBytes(out, 3000))
}

// trip is what an engine says of a route.
type trip struct {
	seconds float64 // without what turns cost
	nodes   []int64
}

// engine asks a routing engine for a route between two nodes; ok is false if there is none.
type engine func(from, to int64) (trip, bool)

// requireFollows checks that an engine uses the speeds of the layer, avoids closed streets, and
// does both after changes.
func (w *world) requireFollows(route engine) {
	t := w.T
	t.Helper()
	pick := func() int64 {
		b := w.blocks[w.random.IntN(len(w.blocks))]
		return b.Nodes[0]
	}
	var worst, sum float64
	var longest trip
	n := 0
	for tries := 0; n < 200; tries++ {
		require.Less(t, tries, 2000, "only %d usable routes", n)
		r, ok := route(pick(), pick())
		want, metres := w.seconds(r.nodes)
		if !ok || metres < 500 || math.IsNaN(want) {
			continue
		}
		n++
		if off := math.Abs(r.seconds/want - 1); off > worst {
			worst = off
		}
		sum += r.seconds / want
		require.InEpsilon(t, want, r.seconds, 0.02, "route %v", r.nodes)
		if len(r.nodes) > len(longest.nodes) {
			longest = r
		}
	}
	t.Logf("%d routes: mean of the ratio of travel times %.4f, at most %.2f %% off", n, sum/float64(n), 100*worst)

	// A change of 1 %: a street on the longest route is closed, others get slower.
	closed := w.pairs[[2]int64{longest.nodes[len(longest.nodes)/2], longest.nodes[len(longest.nodes)/2+1]}]
	closed.closed = true
	for range len(w.blocks) / 100 {
		w.blocks[w.random.IntN(len(w.blocks))].kmh = 10
	}
	from, to := longest.nodes[0], longest.nodes[len(longest.nodes)-1]
	change := func(what string, done func(r trip) bool) {
		t.Helper()
		w.publish()
		published := time.Now()
		w.Eventually(func() bool {
			r, ok := route(from, to)
			return ok && done(r)
		}, what)
		t.Logf("%s: seen in a route %.1f s after the publication", what, time.Since(published).Seconds())
	}
	passes := func(r trip) bool {
		for i := 1; i < len(r.nodes); i++ {
			if w.pairs[[2]int64{r.nodes[i-1], r.nodes[i]}] == closed {
				return true
			}
		}
		return false
	}
	change("a closed street is avoided", func(r trip) bool { return !passes(r) })
	closed.closed = false
	closed.kmh = 120
	change("an open, fast street is used", passes)
}

func (w *world) json(method, url string, body, answer any) int {
	w.T.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		require.NoError(w.T, err)
	}
	req, err := http.NewRequestWithContext(w.T.Context(), method, url, bytes.NewReader(text))
	require.NoError(w.T, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0 // it does not listen yet
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	require.NoError(w.T, err)
	_ = json.Unmarshal(text, answer) // an error has another form
	return resp.StatusCode
}

// valhallaTiles builds Valhalla's tiles and their archive.
func (w *world) valhallaTiles(dir string) (base string) {
	t := w.T
	t.Helper()
	address := daemontest.FreeAddress(t)
	text := foreign.Run(t, "python3", filepath.Join(dir, "valhalla_build_config.py"), "--mjolnir-tile-dir", filepath.Join(w.dir, "tiles"),
		"--mjolnir-tile-extract", filepath.Join(w.dir, "tiles.tar"), "--mjolnir-traffic-extract", filepath.Join(w.dir, "traffic.tar"))
	config := map[string]map[string]any{}
	require.NoError(t, json.Unmarshal(text, &config))
	sockets := t.TempDir()
	for _, service := range []string{"loki", "thor", "odin", "meili"} {
		config[service]["service"] = map[string]any{"proxy": "ipc://" + filepath.Join(sockets, service)}
	}
	config["httpd"]["service"] = map[string]any{
		"listen": "tcp://" + address, "loopback": "ipc://" + filepath.Join(sockets, "loopback"), "interrupt": "ipc://" + filepath.Join(sockets, "interrupt"),
		"drain_seconds": 1, "shutdown_seconds": 1, "timeout_seconds": -1,
	}
	text, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "valhalla.json"), text, 0o600))
	w.program(filepath.Join(dir, "bin", "valhalla_build_tiles"), "-c", "valhalla.json", w.osm)
	w.program("python3", filepath.Join(dir, "valhalla_build_extract.py"), "-c", "valhalla.json")
	return "http://" + address
}

// startValhalla starts Valhalla and waits until it responds.
func (w *world) startValhalla(dir, base string) {
	service := exec.Command(filepath.Join(dir, "bin", "valhalla_service"), filepath.Join(w.dir, "valhalla.json"), "1")
	var log bytes.Buffer
	service.Stdout, service.Stderr = &log, &log
	w.start(service, &log)
	w.Eventually(func() bool { return w.json(http.MethodGet, base+"/status", nil, new(any)) == http.StatusOK }, "Valhalla")
}

func TestValhalla(t *testing.T) {
	dir, _ := engines(t)
	w := newWorld(t)
	base := w.valhallaTiles(dir)
	args := []string{"--for", "valhalla", "--tiles", filepath.Join(w.dir, "tiles.tar"), "--output", filepath.Join(w.dir, "traffic.tar")}
	out, err := w.command(append(args, "--once")...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "have nodes that are not in")
	t.Logf("%s", out)
	w.startValhalla(dir, base)
	w.follow(args...)
	w.requireFollows(func(from, to int64) (trip, bool) { return w.valhalla(base, from, to, time.Now().UTC()) })
}

// typical returns the share of a street's speed that is usual at a time: there is a rush hour, but
// not on Saturday. Sunday has not been learned.
func typical(weekday time.Weekday, hour float64) float64 {
	if weekday == time.Saturday {
		return 1
	}
	return 1 - 0.6*math.Exp(-(hour-8)*(hour-8)/8)
}

// TestTypical checks that Valhalla uses the forecaster's typical speeds of each weekday and hour.
func TestTypical(t *testing.T) {
	dir, _ := engines(t)
	var w *world
	forecaster := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var response struct {
			List     string     `json:"list"`
			Problem  string     `json:"problem"`
			Street   []int      `json:"street"`
			FromNode []int      `json:"fromnode"`
			Usual    []*float64 `json:"usual"`
		}
		weekday, _ := strconv.Atoi(r.FormValue("weekday")) // 0 in the request for the streets
		hour, _ := strconv.Atoi(r.FormValue("hour"))
		for _, b := range w.blocks {
			response.Street, response.FromNode = append(response.Street, b.Street), append(response.FromNode, b.FromNode)
			response.Usual = append(response.Usual, new(b.kmh*typical(time.Weekday(weekday%7), float64(hour))))
		}
		if weekday == 7 {
			response.Problem, response.Usual = "no such weekday has been learned yet", make([]*float64, len(w.blocks))
		}
		_ = json.NewEncoder(rw).Encode(response)
	}))
	defer forecaster.Close()
	w = newWorld(t, "ui.forecaster="+strings.TrimPrefix(forecaster.URL, "http://"))
	base := w.valhallaTiles(dir)
	out, err := exec.Command(foreign.Trafficctl(t), "route", "typical", w.matches, "--url", "http://"+w.Ops,
		"--tiles", filepath.Join(w.dir, "tiles.tar"), "--output", filepath.Join(w.dir, "typical")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "weekday 7, where 1 is Monday, gets the mean of the others: no such weekday has been learned yet")
	t.Logf("%s", out)
	w.program(filepath.Join(dir, "bin", "valhalla_add_predicted_traffic"), "-c", "valhalla.json", "-t", "typical")
	w.program("python3", filepath.Join(dir, "valhalla_build_extract.py"), "-c", "valhalla.json", "--overwrite")
	w.startValhalla(dir, base)

	monday := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for day, name := range []string{"Monday", "Tuesday", "Saturday"} {
		day = []int{0, 1, 5}[day]
		for _, hour := range []int{3, 6, 8, 10, 17} {
			at, n, worst, sum := monday.AddDate(0, 0, day).Add(time.Duration(hour)*time.Hour+2*time.Minute), 0, 0.0, 0.0
			share := typical(at.Weekday(), float64(hour))
			for tries := 0; n < 20; tries++ {
				require.Less(t, tries, 400, "only %d usable routes", n)
				r, ok := w.valhalla(base, w.blocks[w.random.IntN(len(w.blocks))].Nodes[0], w.blocks[w.random.IntN(len(w.blocks))].Nodes[0], at)
				want, metres := w.seconds(r.nodes)
				if !ok || metres < 500 || math.IsNaN(want) {
					continue
				}
				require.InEpsilon(t, want/share, r.seconds, 0.08, "%s %02d:00", name, hour)
				n, sum, worst = n+1, sum+r.seconds/want, max(worst, math.Abs(r.seconds*share/want-1))
			}
			t.Logf("%s %02d:00: 20 routes take %.2f times as long as without traffic, want %.2f; at most %.1f %% off", name, hour, sum/20, 1/share, 100*worst)
		}
	}
}

// valhalla asks for a route at a time. With date_time, Valhalla uses live speeds; with the type 3,
// it does so for the whole route instead of blending others in.
func (w *world) valhalla(base string, from, to int64, at time.Time) (r trip, ok bool) {
	type location struct {
		Lat float64 `json:"lat"`
		Lon float64 `json:"lon"`
	}
	place := func(node int64) location { return location{w.nodes[node][1], w.nodes[node][0]} }
	var answer struct {
		Trip struct {
			Legs []struct {
				Shape   string
				Summary struct{ Time float64 }
			}
		}
	}
	status := w.json(http.MethodPost, base+"/route", map[string]any{
		"locations": []location{place(from), place(to)}, "costing": "auto",
		"date_time": map[string]any{"type": 3, "value": at.Format("2006-01-02T15:04")},
	}, &answer)
	if status != http.StatusOK {
		return r, false
	}
	leg := answer.Trip.Legs[0]
	var walk struct {
		Edges []struct {
			EndNode struct {
				TransitionTime float64 `json:"transition_time"`
			} `json:"end_node"`
		}
	}
	if w.json(http.MethodPost, base+"/trace_attributes", map[string]any{
		"encoded_polyline": leg.Shape, "costing": "auto", "shape_match": "walk_or_snap",
	}, &walk) != http.StatusOK {
		return r, false
	}
	r.seconds = leg.Summary.Time
	for _, e := range walk.Edges {
		r.seconds -= e.EndNode.TransitionTime
	}
	for _, p := range polyline(leg.Shape) {
		n := w.at[p]
		if len(r.nodes) == 0 || r.nodes[len(r.nodes)-1] != n {
			r.nodes = append(r.nodes, n)
		}
	}
	return r, true
}

// polyline decodes positions in 1e-6 degrees: longitude, latitude.
func polyline(text string) (points [][2]int) {
	var last [2]int // latitude first
	for i := 0; i < len(text); {
		for k := range last {
			value, shift := 0, 0
			for {
				c := int(text[i]) - 63
				i++
				value |= c & 31 << shift
				shift += 5
				if c < 32 {
					break
				}
			}
			last[k] += value>>1 ^ -(value & 1)
		}
		points = append(points, [2]int{last[1], last[0]})
	}
	return points
}

func TestOSRM(t *testing.T) {
	_, dir := engines(t)
	w := newWorld(t)
	address := daemontest.FreeAddress(t)
	program := func(name string) string { return filepath.Join(dir, "bin", name) }
	dataset := "trafficd-" + address[strings.LastIndex(address, ":")+1:]
	_, free := os.Stat("/dev/shm/osrm-region")
	w.program(program("osrm-extract"), "-p", filepath.Join(dir, "share", "profiles", "car.lua"), w.osm)
	w.program(program("osrm-partition"), "town.osrm")
	w.program("cp", "town.osrm.geometry", "extracted.geometry")
	w.program(program("osrm-customize"), "town.osrm")
	w.program(program("osrm-datastore"), "town.osrm", "--dataset-name", dataset)
	host, port, _ := strings.Cut(address, ":")
	service := exec.Command(program("osrm-routed"), "--shared-memory", "--dataset-name", dataset, "--algorithm", "mld", "-i", host, "-p", port)
	var log bytes.Buffer
	service.Stdout, service.Stderr = &log, &log
	w.start(service, &log)
	if os.IsNotExist(free) { // the shared memory is of this test only
		t.Cleanup(func() {
			c := exec.Command(program("osrm-datastore"), "--spring-clean")
			c.Stdin = strings.NewReader("Y")
			require.NoError(t, c.Run())
		})
	}

	w.follow("--for", "osrm", "--output", filepath.Join(w.dir, "speeds.csv"), "--every", "1s", "--run", "cd "+w.dir+
		" && cp extracted.geometry town.osrm.geometry && "+program("osrm-customize")+" town.osrm --segment-speed-file speeds.csv && "+
		program("osrm-datastore")+" town.osrm --only-metric --dataset-name "+dataset)
	route := func(from, to int64) (r trip, ok bool) { return w.osrm("http://"+address, from, to) }
	from, to := w.blocks[0].Nodes[0], w.blocks[len(w.blocks)/2].Nodes[0]
	w.Eventually(func() bool {
		r, ok := route(from, to)
		want, _ := w.seconds(r.nodes)
		return ok && math.Abs(r.seconds/want-1) < 0.05
	}, "the first speeds")
	w.requireFollows(route)
}

func (w *world) osrm(base string, from, to int64) (r trip, ok bool) {
	a, b := w.nodes[from], w.nodes[to]
	var answer struct {
		Routes []struct {
			Legs []struct {
				Annotation struct {
					Nodes    []int64
					Duration []float64
				}
			}
		}
	}
	url := fmt.Sprintf("%s/route/v1/driving/%.7f,%.7f;%.7f,%.7f?annotations=true&overview=false", base, a[0], a[1], b[0], b[1])
	if w.json(http.MethodGet, url, nil, &answer) != http.StatusOK {
		return r, false
	}
	leg := answer.Routes[0].Legs[0].Annotation
	r.nodes = leg.Nodes
	// A route that starts at a junction may have all of the pair before it, without its length.
	if leg.Duration[0] == 0 {
		r.nodes = r.nodes[1:]
	}
	if leg.Duration[len(leg.Duration)-1] == 0 {
		r.nodes = r.nodes[:len(r.nodes)-1]
	}
	for _, d := range leg.Duration {
		r.seconds += d
	}
	return r, true
}
