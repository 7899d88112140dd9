package forecast

import (
	"encoding/json"
	"io"
	"math"

	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// feature is a street in GeoJSON (RFC 7946).
type feature struct {
	Type       string      `json:"type"`
	Geometry   *lineString `json:"geometry"` // null where the code does not decode
	Properties properties  `json:"properties"`
}

type lineString struct {
	Type        string       `json:"type"`
	Coordinates [][2]float64 `json:"coordinates"` // longitude, latitude
}

// properties are the street's members and, where there is one period only, as
// with a horizon, that one's beside them: map programs colour by plain members.
type properties struct {
	Street   int32    `json:"street"`
	Fromnode int32    `json:"fromnode"`
	Code     string   `json:"openLRcode"`
	Note     string   `json:"note,omitempty"` // why there is no geometry
	Start    string   `json:"start,omitempty"`
	End      string   `json:"end,omitempty"`
	Speed    *float64 `json:"speed,omitempty"`
	Forecast []period `json:"forecast"`
}

type period struct {
	Start      string  `json:"start"`
	End        string  `json:"end"`
	SpeedValid bool    `json:"speed_valid"`
	Speed      float64 `json:"speed"`
	Timezone   string  `json:"timezone"`
}

func showGeoJSON(w io.Writer, layer *pb.StreetForecastResponse) error {
	if _, err := io.WriteString(w, `{"type":"FeatureCollection","features":[`+"\n"); err != nil {
		return err
	}
	for i, f := range layer.StreetForecast {
		text, err := json.Marshal(featureOf(f))
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte(",\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n]}\n")
	return err
}

func featureOf(f *pb.StreetForecast) feature {
	p := properties{Street: f.Street, Fromnode: f.Fromnode, Code: f.OpenLRcode, Forecast: []period{}}
	for _, of := range f.Forecast {
		p.Forecast = append(p.Forecast, period{of.Start, of.End, of.SpeedValid, of.Speed, of.Timezone})
	}
	if len(f.Forecast) == 1 {
		only := f.Forecast[0]
		p.Start, p.End = only.Start, only.End
		if only.SpeedValid {
			p.Speed = &only.Speed
		}
	}
	line, err := openlr.Decode(f.OpenLRcode)
	if err != nil {
		p.Note = err.Error()
		return feature{"Feature", nil, p}
	}
	return feature{"Feature", &lineString{"LineString", rounded(line.Geometry())}, p}
}

// rounded leaves 6 digits, 0.1 m: the codes know 1 m.
func rounded(line [][2]float64) [][2]float64 {
	for i := range line {
		for j := range line[i] {
			line[i][j] = math.Round(line[i][j]*1e6) / 1e6
		}
	}
	return line
}
