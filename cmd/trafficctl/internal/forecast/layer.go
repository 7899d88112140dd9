// Package forecast generates street forecasts, reads forecast files, and gets and formats the
// daemon's forecast layer. Package trafficd/sources/forecasts defines the file formats and the
// validity of forecasts.
package forecast

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twpayne/go-geom"
	"github.com/twpayne/go-geom/encoding/geojson"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/must"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Request describes a request for the layer.
type Request struct {
	Horizon int // minutes from now; -1: all periods

	Part  string        // query parameter that selects streets, such as tile=12/2190/1282; empty: all
	Since string        // Forecast-Version of an earlier response, to get only later changes; may be empty
	Wait  time.Duration // how long the daemon may wait for a change
}

// Response is the daemon's response to a Request. If the header Forecast-Content is "changes",
// Layer contains only the changes since Request.Since, without openLRcodes that have not changed.
type Response struct {
	http.Header
	Layer    *pb.StreetForecastResponse
	Received int64 // size of the response body in bytes
	Size     int   // size of the decompressed message in bytes
}

// maxLayer limits the size of the message to less than 2 GiB, which is also Protobuf's limit.
const maxLayer = 2 << 30

// Get requests the layer once. It neither retries nor follows redirects.
func Get(ctx context.Context, c *client.Client, r Request) (response *Response, err error) {
	defer must.Return(&err)
	if r.Horizon < -1 {
		return nil, fmt.Errorf("--horizon %d must be a number of minutes from now, or -1 for all periods", r.Horizon)
	}
	req := must.Get(c.NewRequest(ctx, http.MethodGet, nil))
	query, err := url.ParseQuery(r.Part)
	for name := range query {
		if !slices.Contains([]string{"tile", "bbox", "street"}, name) { // the daemon ignores unknown parameters
			err = errors.New("unknown parameter " + name)
		}
	}
	must.Do(err, fmt.Sprintf("--part %q must be tile=z/x/y, bbox=minLon,minLat,maxLon,maxLat or street=1,2,3", r.Part))
	if r.Horizon >= 0 {
		query.Set("horizon", strconv.Itoa(r.Horizon))
	}
	if r.Since != "" {
		query.Set("since", r.Since)
		req.Header.Set("Prefer", fmt.Sprintf("wait=%d", r.Wait/time.Second))
	}
	req.URL.RawQuery = query.Encode()
	req.Header.Set("Accept", "application/x-protobuf")
	req.Header.Set("Accept-Encoding", "gzip") // also disables the transport's decompression
	resp, err := c.Do(req)
	must.Do(err, "cannot get the forecasts")
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.ReadError(resp)
	}
	response = &Response{Header: resp.Header}
	return response, response.read(resp.Body)
}

func (r *Response) read(body io.Reader) (err error) {
	defer must.Return(&err)
	meter := &feed.Meter{R: body}
	plain, err := feed.Decompress(meter)
	must.Do(err, "cannot read the response")
	defer plain.Close()
	message, err := io.ReadAll(io.LimitReader(plain, maxLayer))
	if err == nil && len(message) == maxLayer {
		err = errors.New("the layer exceeds 2 GiB")
	}
	must.Do(err, "cannot read the response")
	r.Received, r.Size = meter.N.Load(), len(message)
	r.Layer = new(pb.StreetForecastResponse)
	if err := proto.Unmarshal(message, r.Layer); err != nil {
		return fmt.Errorf("cannot decode the response as StreetForecastResponse: %w; check that --url points to a trafficd daemon", err)
	}
	return nil
}

// Formats lists the output formats of Show.
var Formats = []string{"table", "json", "csv", "geojson", "protobuf"}

// Show writes the layer in one of Formats.
func Show(w io.Writer, format string, layer *pb.StreetForecastResponse) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var err error
	switch format {
	case "table":
		err = showTable(out, layer)
	case "csv":
		err = showCSV(out, layer)
	case "geojson":
		err = showGeoJSON(out, layer)
	default:
		_, err = publish.Write(out, format, slices.Values(layer.StreetForecast))
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func showTable(w io.Writer, layer *pb.StreetForecastResponse) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STREET\tFROM\tSTART\tEND\tSPEED\tZONE\tOPENLR")
	for _, f := range layer.StreetForecast {
		for _, p := range f.Forecast {
			speed := strconv.FormatFloat(p.Speed, 'g', 6, 64)
			if !p.GetSpeedValid() {
				speed = "-"
			}
			fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", f.Street, f.Fromnode, p.Start, p.End, speed, p.Timezone, printable(f.OpenLRcode))
		}
	}
	return table.Flush()
}

// printable returns text, quoted if it contains control characters.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// showCSV writes a row for each period, with the columns of the ClickHouse feed.
func showCSV(w io.Writer, layer *pb.StreetForecastResponse) error {
	out := csv.NewWriter(w) // its Error method returns the errors of Write
	_ = out.Write([]string{"street", "fromnode", "openLRcode", "start", "end", "flow_valid", "speed_valid", "speed", "flow", "timezone"})
	for _, f := range layer.StreetForecast {
		for _, p := range f.Forecast {
			_ = out.Write([]string{
				strconv.Itoa(int(f.Street)), strconv.Itoa(int(f.Fromnode)), f.OpenLRcode, p.Start, p.End,
				strconv.FormatBool(p.FlowValid), strconv.FormatBool(p.GetSpeedValid()), number(p.Speed), number(p.Flow), p.Timezone,
			})
		}
	}
	out.Flush()
	return out.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func showGeoJSON(w *bufio.Writer, layer *pb.StreetForecastResponse) error {
	w.WriteString(`{"type":"FeatureCollection","features":[` + "\n")
	for i, f := range layer.StreetForecast {
		text, err := json.Marshal(featureOf(f))
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

// featureOf returns a street as a GeoJSON feature (RFC 7946). If the street's code cannot be
// decoded, the feature has no geometry but a note with the reason. If there is only one period, as
// with a horizon, its times and valid speed are also top-level properties, which mapping
// applications use to style features.
func featureOf(f *pb.StreetForecast) *geojson.Feature {
	periods := make([]any, len(f.Forecast))
	for i, p := range f.Forecast {
		periods[i] = map[string]any{
			"start": p.Start, "end": p.End, "speed_valid": p.GetSpeedValid(), "speed": p.Speed, "timezone": p.Timezone,
		}
	}
	properties := map[string]any{"street": f.Street, "fromnode": f.Fromnode, "openLRcode": f.OpenLRcode, "forecast": periods}
	if len(f.Forecast) == 1 {
		only := f.Forecast[0]
		properties["start"], properties["end"] = only.Start, only.End
		if only.GetSpeedValid() {
			properties["speed"] = only.Speed
		}
	}
	line, err := openlr.Decode(f.OpenLRcode)
	if err != nil {
		properties["note"] = err.Error()
		return &geojson.Feature{Properties: properties}
	}
	var flat []float64
	for _, p := range line.Points {
		flat = append(flat, round(p.Lon), round(p.Lat))
	}
	return &geojson.Feature{Geometry: geom.NewLineStringFlat(geom.XY, flat), Properties: properties}
}

// round rounds to 6 decimal places (0.1 m). OpenLR codes have a resolution of 1 m.
func round(degrees float64) float64 { return math.Round(degrees*1e6) / 1e6 }
