package clients

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/needs"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	mapKey  = "map"
	mapZone = "America/Argentina/Buenos_Aires"
)

// TestForecastClients checks that clients that share no code with the daemon read every published
// field, for each kind of feed. They download the protobuf definition from the daemon, fetch the
// layer with curl, and decode it with protoc and with the Python code that protoc generates.
func TestForecastClients(t *testing.T) {
	needs.Everything(t, "a real ClickHouse, Apache Kafka and several clients")
	published := publishedForecasts()
	file := forecastFile(t, published)
	f := func(settings ...string) {
		t.Helper()
		requireClientsRead(t, serveLayer(t, settings...), published)
	}
	f("forecasts.feed=file", "forecasts.file.path="+file)

	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Topic("forecasts", 3), stores.Set("log.cleanup.policy", "compact"))
	foreign.Run(t, foreign.Trafficctl(t), "forecast", "publish", file, "--brokers", k.Brokers[0], "--topic", "forecasts")
	f("forecasts.feed=kafka", "forecasts.kafka.topic=forecasts", "forecasts.kafka.brokers="+k.Brokers[0])

	c := stores.StartClickHouse(t)
	fillTable(t, c, published)
	f("forecasts.feed=clickhouse", "forecasts.clickhouse.address="+c.TCP, "forecasts.clickhouse.query=SELECT * FROM road.forecasts")
}

// addedMember matches a member of forecast.proto that its first version did not have.
var addedMember = regexp.MustCompile(`(?m)^  optional \w+ (length|free_flow_speed|speed_low|speed_high|basis|closed) = \d+;\n`)

// TestOldGeneratedClients checks that Python and Java code that protoc has generated from the first
// version of forecast.proto reads the same streets and periods from a layer with all later members.
func TestOldGeneratedClients(t *testing.T) {
	needs.Everything(t, "protoc, Python and Java")
	want := publishedForecasts()
	d := serveLayer(t, "forecasts.feed=file", "forecasts.file.path="+forecastFile(t, want))
	for _, s := range want.StreetForecast {
		s.Length, s.FreeFlowSpeed = nil, nil
		for _, p := range s.Forecast {
			p.SpeedLow, p.SpeedHigh, p.Basis, p.Closed = nil, nil, nil, nil
		}
	}
	base, dir := "http://"+d.API, t.TempDir()
	daemontest.DownloadSchemas(t, base, dir)
	definition := filepath.Join(dir, "trafficd", "v1", "forecast.proto")
	text, err := os.ReadFile(definition)
	require.NoError(t, err)
	require.Len(t, addedMember.FindAll(text, -1), 6)
	write(t, definition, string(addedMember.ReplaceAll(text, nil)))
	layer := filepath.Join(dir, "layer.pb")
	fetchLayer(t, base, layer)

	foreign.Run(t, "protoc", "--proto_path="+dir, "--python_out="+dir, "--java_out="+dir, "trafficd/v1/forecast.proto")
	requireLayer(t, "Python", want, fromLines(t, foreign.Run(t, protobufPython(t), filepath.Join("testdata", "layer.py"), dir, layer)))

	libraries := foreign.Jars(t, "consumer", filepath.Join("testdata", "consumers", "pom.xml"))
	foreign.Run(t, "javac", "-cp", libraries, "-d", dir, filepath.Join("testdata", "Layer.java"), filepath.Join(dir, "trafficd", "v1", "Forecast.java"))
	java := foreign.Java("-cp", dir+string(filepath.ListSeparator)+libraries, "Layer", layer)
	requireLayer(t, "Java", want, fromLines(t, foreign.Run(t, java.Path, java.Args[1:]...)))
}

// forecastFile stores forecasts for the feed "file".
func forecastFile(t *testing.T, published *pb.StreetForecastResponse) (path string) {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(published)
	require.NoError(t, err)
	return write(t, filepath.Join(t.TempDir(), "forecasts.json"), string(text))
}

// serveLayer runs a daemon that has forecasts.
func serveLayer(t *testing.T, settings ...string) *daemontest.Trafficd {
	t.Helper()
	d := daemontest.New(t, settings...)
	d.Keys(daemontest.KeyEntry(mapKey, "forecast", mapZone))
	d.Run().Await(http.StatusOK)
	d.AwaitLayer(mapKey)
	return d
}

// fetchLayer stores the layer with all members, and returns it.
func fetchLayer(t *testing.T, base, path string, options ...string) []byte {
	t.Helper()
	foreign.Run(t, "curl", append(options, "-sS", "--fail", "-H", "Authorization: apiKey "+mapKey, "-o", path, base+layers.Path+"?fields=all")...)
	body, err := os.ReadFile(path)
	require.NoError(t, err)
	return body
}

// requireLayer checks that a client has read the published forecasts, with the client's time zone.
func requireLayer(t *testing.T, client string, published, got *pb.StreetForecastResponse) {
	t.Helper()
	require.Len(t, got.StreetForecast, len(published.StreetForecast), client)
	slices.SortFunc(got.StreetForecast, func(a, b *pb.StreetForecast) int {
		return cmp.Or(cmp.Compare(a.Street, b.Street), cmp.Compare(a.Fromnode, b.Fromnode))
	})
	for i, s := range published.StreetForecast {
		want := proto.Clone(s).(*pb.StreetForecast)
		for _, p := range want.Forecast {
			p.Timezone = mapZone
		}
		require.True(t, proto.Equal(want, got.StreetForecast[i]), "%s: got %v, want %v", client, got.StreetForecast[i], want)
	}
}

// publishedForecasts returns values that clients may get wrong: the limits of each type, and
// defaults, which are not encoded. Streets and periods are in the order of the layer.
func publishedForecasts() *pb.StreetForecastResponse {
	start := time.Now().UTC().Truncate(time.Hour)
	at := func(hours int) string {
		return start.Add(time.Duration(hours) * time.Hour).Format("2006-01-02T15:04:05Z")
	}
	all := []*pb.StreetForecast{
		{Street: math.MinInt32, Fromnode: math.MaxInt32, OpenLRcode: "CwOiYCUMnQkJAP+/ABQBCg==", Forecast: []*pb.ForecastPeriod{
			{Start: at(0), End: at(6), SpeedValid: proto.Bool(true), Speed: 0.1},
			{Start: at(6), End: at(7), SpeedValid: proto.Bool(true), Speed: 499.99999999999994},
		}},
		{Street: -1, Fromnode: -1, OpenLRcode: "CwV9qyHNxjv+AwAZAMQ74AH//gBOO/8A//8AFjvgCgKdAEQ7FQ==", Forecast: []*pb.ForecastPeriod{
			{Start: at(0), End: at(6), FlowValid: true, SpeedValid: proto.Bool(true), Speed: 5e-324, Flow: 1234.5},
		}},
		{Street: 0, Fromnode: 1, Forecast: []*pb.ForecastPeriod{
			{Start: at(0), End: at(6), SpeedValid: proto.Bool(false)}, // all other fields have their defaults
		}},
		{Street: 0, Fromnode: 2, Forecast: []*pb.ForecastPeriod{
			{Start: at(0), End: at(6), SpeedValid: proto.Bool(false), Speed: 20},
		}},
	}
	all[0].Length, all[0].FreeFlowSpeed = proto.Float64(106.5), proto.Float64(499.5)
	bounded := all[0].Forecast[0]
	bounded.SpeedLow, bounded.SpeedHigh, bounded.Basis, bounded.Closed = proto.Float64(0), proto.Float64(0.25), proto.String("own"), proto.Bool(false)
	all[1].Forecast[0].Closed, all[1].Forecast[0].SpeedHigh = proto.Bool(true), proto.Float64(50)
	for i := range int32(500) { // more than a deflate block
		all = append(all, &pb.StreetForecast{Street: i + 1, Fromnode: 2*i + 7, OpenLRcode: "CwV/OiHN2TvlAAA1ABM7FQ==", Forecast: []*pb.ForecastPeriod{
			{Start: at(0), End: at(6), SpeedValid: proto.Bool(true), Speed: 30 + float64(i)/10},
			{Start: at(6), End: at(12), FlowValid: i%2 == 0, SpeedValid: proto.Bool(true), Speed: 50 - float64(i)/100, Flow: float64(i)},
		}})
	}
	return &pb.StreetForecastResponse{StreetForecast: all}
}

// fillTable inserts the forecasts into a table, a row for each period.
func fillTable(t *testing.T, c *stores.ClickHouse, published *pb.StreetForecastResponse) {
	t.Helper()
	var rows []string
	plain := strings.NewReplacer("T", " ", "Z", "")
	for _, s := range published.StreetForecast {
		for _, p := range s.Forecast {
			rows = append(rows, fmt.Sprintf("(%d, %d, '%s', '%s', '%s', %t, %t, %v, %v, %s, %s, %s, %s, %s, %s)",
				s.Street, s.Fromnode, s.OpenLRcode, plain.Replace(p.Start), plain.Replace(p.End), p.FlowValid, p.GetSpeedValid(), p.Speed, p.Flow,
				literal(p.SpeedLow), literal(p.SpeedHigh), literal(p.Basis), literal(p.Closed), literal(s.Length), literal(s.FreeFlowSpeed)))
		}
	}
	c.Query(t, "CREATE DATABASE road")
	c.Query(t, `CREATE TABLE road.forecasts (street Int32, fromnode Int32, openLRcode String, start DateTime('UTC'), end DateTime('UTC'),
		flow_valid Bool, speed_valid Bool, speed Float64, flow Float64,
		speed_low Nullable(Float64), speed_high Nullable(Float64), basis Nullable(String), closed Nullable(Bool),
		length Nullable(Float64), free_flow_speed Nullable(Float64)) ENGINE = MergeTree ORDER BY (street, fromnode, start)`)
	c.Query(t, "INSERT INTO road.forecasts VALUES "+strings.Join(rows, ", "))
}

// literal returns the SQL of a value that may be absent.
func literal[T any](v *T) string {
	if v == nil {
		return "NULL"
	}
	return fmt.Sprintf("'%v'", *v)
}

// requireClientsRead checks that each client reads exactly the published forecasts.
func requireClientsRead(t *testing.T, d *daemontest.Trafficd, published *pb.StreetForecastResponse) {
	t.Helper()
	base, dir := "http://"+d.API, t.TempDir()
	daemontest.DownloadSchemas(t, base, dir)
	layer := filepath.Join(dir, "layer.pb")
	require.Equal(t, fetchLayer(t, base, layer), fetchLayer(t, base, layer, "--compressed"))

	foreign.Run(t, "protoc", "--proto_path="+dir, "--python_out="+dir, "trafficd/v1/forecast.proto")
	requireLayer(t, "Python", published, fromLines(t, foreign.Run(t, protobufPython(t), filepath.Join("testdata", "layer.py"), dir, layer)))

	var byProtoc pb.StreetForecastResponse
	decoded := foreign.Run(t, "bash", "-c", `protoc --proto_path="$1" --decode trafficd.v1.StreetForecastResponse trafficd/v1/forecast.proto <"$2"`, "bash", dir, layer)
	require.NoError(t, prototext.Unmarshal(decoded, &byProtoc))
	requireLayer(t, "protoc", published, &byProtoc)

	var byTrafficctl pb.StreetForecastResponse
	shown := foreign.Run(t, foreign.Trafficctl(t), "forecast", "get", "--url", base, "--key", mapKey, "--format", "json")
	require.NoError(t, protojson.Unmarshal(shown, &byTrafficctl))
	requireLayer(t, "trafficctl", published, &byTrafficctl)
}

// fromLines reads a street as JSON from each line.
func fromLines(t *testing.T, text []byte) *pb.StreetForecastResponse {
	t.Helper()
	layer := &pb.StreetForecastResponse{}
	for line := range bytes.Lines(text) {
		var s pb.StreetForecast
		require.NoError(t, protojson.Unmarshal(line, &s), "%s", line)
		layer.StreetForecast = append(layer.StreetForecast, &s)
	}
	return layer
}

// pythonWithProtobuf is a Python with protobuf's runtime. Debian's package is for Debian's Python,
// which might not be the first in PATH.
var pythonWithProtobuf = sync.OnceValues(func() (string, error) {
	var err error
	for _, program := range []string{"/usr/bin/python3", "python3"} {
		var out []byte
		if out, err = exec.Command(program, "-c", "import google.protobuf").CombinedOutput(); err == nil {
			return program, nil
		}
		err = fmt.Errorf("%s has no module google.protobuf (package python3-protobuf): %w: %s", program, err, out)
	}
	return "", err
})

func protobufPython(t *testing.T) string {
	t.Helper()
	program, err := pythonWithProtobuf()
	require.NoError(t, err)
	return program
}
