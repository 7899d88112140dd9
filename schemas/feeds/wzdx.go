package feeds

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
)

// parseWZDx reads the traffic sensors of a device feed of WZDx 4: GeoJSON with a feature per
// device.
func parseWZDx(p *parser, in io.Reader) error {
	return eachElement(in, "features", func(name string, raw json.RawMessage) error {
		if name == "features" {
			return p.feature(raw)
		}
		if name == "feed_info" {
			var info struct {
				Version string `json:"version"`
				Update  string `json:"update_date"`
			}
			if json.Unmarshal(raw, &info) == nil {
				p.Version, p.Published = info.Version, p.time([]byte(info.Update))
			}
		}
		return nil
	})
}

// sensorData are the values of a sensor or of one of its lanes. Version 4.0 has integers, later
// ones have numbers.
type sensorData struct {
	Lane      int             `json:"lane_order"`
	Speed     json.RawMessage `json:"average_speed_kph"`
	Flow      json.RawMessage `json:"volume_vph"`
	Occupancy json.RawMessage `json:"occupancy_percent"`
}

type feature struct {
	ID         string `json:"id"`
	Properties struct {
		sensorData
		Core struct {
			Type      string   `json:"device_type"`
			Status    string   `json:"device_status"`
			Name      string   `json:"name"`
			Direction string   `json:"road_direction"`
			Roads     []string `json:"road_names"`
		} `json:"core_details"`
		From  string       `json:"collection_interval_start_date"`
		To    string       `json:"collection_interval_end_date"`
		Lanes []sensorData `json:"lane_data"`
	} `json:"properties"`
	Geometry struct {
		Coordinates json.RawMessage `json:"coordinates"`
	} `json:"geometry"`
}

func (p *parser) feature(raw json.RawMessage) error {
	var f feature
	if err := json.Unmarshal(raw, &f); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return jsonError(err) // a member of a wrong type is missing; the other devices are not affected
	}
	properties := &f.Properties
	if properties.Core.Type != "traffic-sensor" {
		return nil
	}
	s := Site{ID: f.ID, Name: properties.Core.Name, Side: properties.Core.Direction, Lanes: len(properties.Lanes)}
	if s.Name == "" && len(properties.Core.Roads) > 0 {
		s.Name = properties.Core.Roads[0]
	}
	s.Lon, s.Lat = firstPosition(f.Geometry.Coordinates)
	s.checkPosition()
	p.site(&s)
	p.sensor("", properties.sensorData)
	for _, lane := range properties.Lanes {
		p.sensor("lane"+strconv.Itoa(lane.Lane), lane)
	}
	if status := properties.Core.Status; status != "" && status != "ok" {
		p.fail(Equipment)
	}
	at := stamp{stated: true, from: p.time([]byte(properties.From)), to: p.time([]byte(properties.To))}
	if at.from.IsZero() || at.to.IsZero() { // both are required: half an interval is not guessed
		at = stamp{stated: true}
	}
	p.finish(f.ID, at)
	return p.err
}

// sensor adds the values that a sensor or lane has.
func (p *parser) sensor(lane string, data sensorData) {
	for _, m := range []struct {
		measure Measure
		raw     json.RawMessage
	}{{Speed, data.Speed}, {Flow, data.Flow}, {Occupancy, data.Occupancy}} {
		if len(m.raw) == 0 || string(m.raw) == "null" {
			continue
		}
		p.read(m.measure, bytes.Trim(m.raw, `"`), '.', 1).lane = lane
	}
}

// firstPosition returns the first two numbers of the coordinates of a point, or of several.
func firstPosition(coordinates json.RawMessage) (lon, lat float64) {
	fields := bytes.FieldsFunc(coordinates, func(r rune) bool {
		return r == '[' || r == ']' || r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t'
	})
	if len(fields) < 2 {
		return math.NaN(), math.NaN()
	}
	lon, okLon := number(fields[0], '.')
	lat, okLat := number(fields[1], '.')
	if !okLon || !okLat {
		return math.NaN(), math.NaN()
	}
	return lon, lat
}
