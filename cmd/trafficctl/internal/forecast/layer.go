// Package forecast reads forecast files, and gets and formats the daemon's forecast layer. Package
// trafficd/sources/forecasts defines the file formats and the validity of forecasts.
package forecast

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// Response is the daemon's response to Get.
type Response struct {
	http.Header
	Layer    *pb.StreetForecastResponse
	Received int64 // size of the response body in bytes
	Size     int   // size of the decompressed message in bytes
}

// maxLayer limits the size of the message to less than 2 GiB, which is also Protobuf's limit.
const maxLayer = 2 << 30

// Age returns the age of the newest forecasts.
func (r *Response) Age() time.Duration {
	seconds, _ := strconv.Atoi(r.Get("Forecast-Age"))
	return time.Duration(seconds) * time.Second
}

// Query selects what Get requests.
type Query struct {
	Horizon int           // only the periods that are so many minutes from now; -1: all periods
	Since   string        // an earlier Forecast-Version: only what has changed since; empty: everything
	Wait    time.Duration // how long the daemon waits for a change, with Since; a multiple of seconds
}

// Get requests the layer with all members once. It neither retries nor follows redirects.
func Get(ctx context.Context, c *client.Client, q Query) (*Response, error) {
	if q.Horizon < -1 {
		return nil, fmt.Errorf("--horizon %d must be a number of minutes from now, or -1 for all periods", q.Horizon)
	}
	req, err := c.NewRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = "fields=all"
	if q.Horizon >= 0 {
		req.URL.RawQuery += "&horizon=" + strconv.Itoa(q.Horizon)
	}
	if q.Since != "" {
		req.URL.RawQuery += "&since=" + url.QueryEscape(q.Since)
		req.Header.Set("Prefer", fmt.Sprintf("wait=%.0f", q.Wait.Seconds()))
	}
	req.Header.Set("Accept", "application/x-protobuf")
	req.Header.Set("Accept-Encoding", "gzip") // also disables the transport's decompression
	resp, err := c.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, interrupt.Error(ctx)
	case err != nil:
		return nil, fmt.Errorf("cannot get the forecasts: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.ReadError(resp)
	}
	meter := &feed.Meter{R: resp.Body}
	message, err := readAll(meter)
	if err != nil {
		return nil, fmt.Errorf("cannot read the response: %w", err)
	}
	r := &Response{Header: resp.Header, Received: meter.N.Load(), Size: len(message), Layer: new(pb.StreetForecastResponse)}
	if err := proto.Unmarshal(message, r.Layer); err != nil {
		return nil, fmt.Errorf("cannot decode the response as StreetForecastResponse: %w; check that --url points to a trafficd daemon", err)
	}
	return r, nil
}

func readAll(body io.Reader) ([]byte, error) {
	plain, err := feed.Decompress(body)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	message, err := io.ReadAll(io.LimitReader(plain, maxLayer))
	if err == nil && len(message) == maxLayer {
		err = errors.New("the layer exceeds 2 GiB")
	}
	return message, err
}

// GeoJSON is the output format for maps.
const GeoJSON = "geojson"

// Formats lists the output formats of Show.
var Formats = []string{forecasts.FormatJSON, GeoJSON, forecasts.FormatProtobuf}

// Courses holds the positions along streets, by street and fromnode: longitudes and latitudes.
type Courses map[[2]int32][][2]float64

// Show writes the layer in one of Formats. In GeoJSON, streets follow their courses.
func Show(w io.Writer, format string, layer *pb.StreetForecastResponse, courses Courses) error {
	if format != GeoJSON {
		_, err := publish.Write(w, format, slices.Values(layer.StreetForecast))
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := showGeoJSON(out, layer, courses); err != nil {
		return err
	}
	return out.Flush()
}

func showGeoJSON(w *bufio.Writer, layer *pb.StreetForecastResponse, courses Courses) error {
	w.WriteString(`{"type":"FeatureCollection","features":[` + "\n")
	for i, f := range layer.StreetForecast {
		text, err := json.Marshal(featureOf(f, courses[[2]int32{f.Street, f.Fromnode}]))
		if err != nil {
			return err
		}
		if i > 0 {
			w.WriteString(",\n")
		}
		w.Write(text)
	}
	w.WriteString("\n]}\n")
	return nil
}

// feature is a GeoJSON feature.
type feature struct {
	Type       string         `json:"type"`
	Geometry   *lineString    `json:"geometry"`
	Properties map[string]any `json:"properties"`
}

type lineString struct {
	Type        string       `json:"type"`
	Coordinates [][2]float64 `json:"coordinates"`
}

// featureOf returns a street as a GeoJSON feature (RFC 7946). Without a course, it has the points
// of the street's code. If this cannot be decoded, it has no geometry but a note with the reason.
// If there is only one period, as with a horizon, its times and valid speed are also top-level
// properties, which mapping applications use to style features.
func featureOf(f *pb.StreetForecast, course [][2]float64) feature {
	periods := make([]any, len(f.Forecast))
	for i, p := range f.Forecast {
		period := map[string]any{
			"start": p.Start, "end": p.End, "speed_valid": p.GetSpeedValid(), "speed": p.Speed, "timezone": p.Timezone,
		}
		setOptional(period, p)
		periods[i] = period
	}
	properties := map[string]any{"street": f.Street, "fromnode": f.Fromnode, "openLRcode": f.OpenLRcode, "forecast": periods}
	if f.Length != nil {
		properties["length"] = *f.Length
	}
	if f.FreeFlowSpeed != nil {
		properties["free_flow_speed"] = *f.FreeFlowSpeed
	}
	if len(f.Forecast) == 1 {
		only := f.Forecast[0]
		properties["start"], properties["end"] = only.Start, only.End
		if only.GetSpeedValid() {
			properties["speed"] = only.Speed
		}
		setOptional(properties, only)
	}
	shape := &lineString{Type: "LineString"}
	for _, p := range course {
		shape.Coordinates = append(shape.Coordinates, [2]float64{round(p[0]), round(p[1])})
	}
	if course == nil {
		line, err := openlr.Decode(f.OpenLRcode)
		if err != nil {
			properties["note"] = err.Error()
			return feature{Type: "Feature", Properties: properties}
		}
		for _, p := range line.Points {
			shape.Coordinates = append(shape.Coordinates, [2]float64{round(p.Lon), round(p.Lat)})
		}
	}
	return feature{"Feature", shape, properties}
}

// setOptional sets the members that the feed has.
func setOptional(properties map[string]any, p *pb.ForecastPeriod) {
	if p.SpeedLow != nil {
		properties["speed_low"] = *p.SpeedLow
	}
	if p.SpeedHigh != nil {
		properties["speed_high"] = *p.SpeedHigh
	}
	if p.Basis != nil {
		properties["basis"] = *p.Basis
	}
	if p.Closed != nil {
		properties["closed"] = *p.Closed
	}
}

// round rounds to 6 decimal places (0.1 m). OpenLR codes have a resolution of 1 m.
func round(degrees float64) float64 { return math.Round(degrees*1e6) / 1e6 }
