package forecast

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/traffic/town"
	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/trafficctl/internal/feed"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func generated(t testing.TB, streets int) []*pb.StreetForecast {
	t.Helper()
	cfg := town.DefaultForecastConfig()
	cfg.Streets, cfg.From = streets, time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	all, err := town.Forecasts(cfg)
	require.NoError(t, err)
	return slices.Collect(all)
}

// TestWriteThenRead checks that each format is read back unchanged.
func TestWriteThenRead(t *testing.T) {
	all := generated(t, 20)
	for _, format := range []string{forecasts.FormatProtobuf, forecasts.FormatJSON, forecasts.FormatNDJSON} {
		var b bytes.Buffer
		n, err := publish.Write(&b, format, slices.Values(all))
		require.NoError(t, err)
		require.Equal(t, len(all), n)
		content, err := ReadFile(t.Context(), feed.Stdin, format, forecasts.MaxSpeed, &b, func(note string) { t.Error(note) })
		require.NoError(t, err)
		require.Len(t, content.Forecasts, len(all))
		for i := range all {
			require.True(t, proto.Equal(all[i], content.Forecasts[i]))
		}
	}
	var b bytes.Buffer
	_, err := publish.Write(&b, forecasts.FormatProtobuf, slices.Values(all))
	require.NoError(t, err)
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.StreetForecastResponse{StreetForecast: all})
	require.NoError(t, err)
	require.Equal(t, message, b.Bytes(), "the bytes of proto.Marshal")
}

// TestGeoJSONWithoutGeometry checks that a street whose code cannot be decoded is written with a
// null geometry.
func TestGeoJSONWithoutGeometry(t *testing.T) {
	f := generated(t, 1)[0]
	f.OpenLRcode, f.Forecast = "odd", f.Forecast[:1]
	var b bytes.Buffer
	require.NoError(t, Show(&b, "geojson", &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{f, f}}, nil))
	var all struct {
		Type     string
		Features []struct {
			Type       string
			Geometry   any
			Properties map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &all))
	require.Equal(t, "FeatureCollection", all.Type)
	require.Len(t, all.Features, 2)
	require.Nil(t, all.Features[0].Geometry)
	require.Contains(t, all.Features[0].Properties["note"], `cannot decode OpenLR code "odd"`)
	require.Equal(t, f.Forecast[0].Speed, all.Features[0].Properties["speed"])

	b.Reset()
	require.NoError(t, Show(&b, "geojson", &pb.StreetForecastResponse{}, nil))
	require.True(t, json.Valid(b.Bytes()))
}

// TestGetInvalidResponses checks that only a complete layer is accepted.
func TestGetInvalidResponses(t *testing.T) {
	message, err := proto.Marshal(&pb.StreetForecastResponse{StreetForecast: generated(t, 3)})
	require.NoError(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(message)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	f := func(status int, encoding string, body []byte, want string) {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/base"+client.Forecast.Path, r.URL.Path)
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			w.Write(body)
		}))
		defer server.Close()
		c, err := client.New(client.Config{URL: server.URL + "/base/", Key: "k", Timeout: time.Minute}, client.Forecast)
		require.NoError(t, err)
		defer c.Close()
		a, err := Get(t.Context(), c, Query{Horizon: -1})
		if want == "" {
			require.NoError(t, err)
			require.Len(t, a.Layer.StreetForecast, 3)
			require.EqualValues(t, len(body), a.Received)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f(200, "", message, "")
	f(200, "gzip", packed.Bytes(), "")
	f(200, "gzip", packed.Bytes()[:packed.Len()-5], "cannot read the response")
	f(200, "br", []byte("packed"), "as StreetForecastResponse")
	f(200, "", message[:len(message)-1], "as StreetForecastResponse")
	f(302, "", nil, "302")
	f(502, "", []byte("<html>"), "the daemon responded with 502")
}
