package follow

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"trafficd/cmd/trafficctl/internal/route"
)

// Valhalla reads the speeds of a week in intervals of five minutes, from Sunday 00:00 in local
// time, as the first coefficients of their discrete cosine transform (DCT-II): those with a period
// of 100 minutes or more, which is enough for a value per hour.
const (
	weekHours    = 7 * 24
	hourBuckets  = 12
	coefficients = 200
)

// week holds a speed in km/h for each hour; 0: unknown.
type week [weekHours]float32

// Typical writes the usual speeds of a week to a new directory: a CSV file for each tile, with a
// line for each edge, as valhalla_add_predicted_traffic reads it. get requests the forecaster's
// /streets with a query and decodes the response. Typical returns the number of edges.
func Typical(dir, tilesPath string, matches []route.Match, streets Streets,
	get func(query string, response any) error, log func(string, ...any),
) (written int, err error) {
	tiles, edges, err := coverTiles(tilesPath, matches, streets, log)
	if err != nil {
		return 0, err
	}
	weeks, err := readWeeks(edges, streets, get, log)
	if err != nil {
		return 0, err
	}
	files := make(map[uint64]*strings.Builder)
	for _, t := range tiles {
		files[t.id] = new(strings.Builder)
	}
	for i, e := range edges.keys {
		if w := &weeks[i]; w.fill() {
			night, day := w.nightAndDay()
			fmt.Fprintf(files[e.tile], "%d/%d/%d,%.0f,%.0f,%s\n", e.tile&7, e.tile>>3, e.index, night, day, w.encode())
			written++
		}
	}
	if written == 0 {
		return 0, errors.New("no street of the matches has typical speeds: the forecaster needs a day of measurements")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, fmt.Errorf("cannot create --output: %w; it must be a new directory, because Valhalla reads all files in it", err)
	}
	defer func() {
		if err != nil { // so that the same command can be run again
			_ = os.RemoveAll(dir)
		}
	}()
	for _, t := range tiles {
		path := filepath.Join(dir, strings.TrimSuffix(t.name, tileSuffix)+".csv")
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(files[t.id].String()), 0o644)
		}
		if err != nil {
			return 0, fmt.Errorf("cannot write typical speeds: %w", err)
		}
	}
	return written, nil
}

// readWeeks returns the typical speeds of edges.
func readWeeks(edges *cover[edge], streets Streets, get func(string, any) error, log func(string, ...any)) ([]week, error) {
	var list struct {
		List             string
		Street, FromNode []int32
	}
	if err := get("", &list); err != nil {
		return nil, err
	}
	weeks, speeds, problem := make([]week, len(edges.keys)), make([]speed, len(streets)), ""
	for i := range weekHours {
		weekday, hour := cmp.Or(i/24, 7), i%24
		var typical struct {
			List, Problem string
			Usual         []float32
		}
		if err := get(fmt.Sprintf("weekday=%d&hour=%d", weekday, hour), &typical); err != nil {
			return nil, err
		}
		switch {
		case typical.List != list.List || len(typical.Usual) != len(list.Street) || len(typical.Usual) != len(list.FromNode):
			return nil, errors.New("the forecaster's streets have changed; run the command again")
		case hour > 0 && typical.Problem != problem: // a day is learned as a whole
			return nil, fmt.Errorf("the forecaster responded: %s", cmp.Or(typical.Problem, problem))
		case hour == 0 && typical.Problem != "":
			log("weekday %d, where 1 is Monday, gets the mean of the others: %s", weekday, typical.Problem)
		}
		problem = typical.Problem
		clear(speeds)
		for k, kmh := range typical.Usual {
			if s, ok := streets[key{list.Street[k], list.FromNode[k]}]; ok {
				speeds[s].kmh = kmh
			}
		}
		for k, parts := range edges.parts {
			if s, covered := mean(parts, speeds, 0, 1); covered >= minCover {
				weeks[k][i] = max(s.kmh, minSpeed)
			}
		}
	}
	return weeks, nil
}

// fill sets each unknown speed to the mean at this hour of the other days. It reports whether all
// speeds are known then.
func (w *week) fill() bool {
	for hour := range 24 {
		var sum, known float32
		for i := hour; i < weekHours; i += 24 {
			if w[i] > 0 {
				sum, known = sum+w[i], known+1
			}
		}
		if known == 0 {
			return false
		}
		for i := hour; i < weekHours; i += 24 {
			w[i] = cmp.Or(w[i], sum/known)
		}
	}
	return true
}

// nightAndDay returns the mean speeds outside and within the hours from 7 to 19, which Valhalla
// calls free flow and constrained. For requests without a time, it uses the latter.
func (w *week) nightAndDay() (night, day float32) {
	for i, kmh := range w {
		if hour := i % 24; hour >= 7 && hour < 19 {
			day += kmh / (weekHours / 2)
		} else {
			night += kmh / (weekHours / 2)
		}
	}
	return night, day
}

// transform returns what the speed of each hour adds to each coefficient. Speeds between two hours
// are interpolated; the hour after the last one is the first.
var transform = sync.OnceValue(func() *[coefficients]week {
	const buckets = weekHours * hourBuckets
	var t [coefficients]week
	for k := range t {
		for b := range buckets {
			value := math.Sqrt(2./buckets) * math.Cos(math.Pi/buckets*(float64(b)+.5)*float64(k))
			if k == 0 {
				value *= math.Sqrt(.5)
			}
			hour, share := b/hourBuckets, float64(b%hourBuckets)/hourBuckets
			t[k][hour] += float32((1 - share) * value)
			t[k][(hour+1)%weekHours] += float32(share * value)
		}
	}
	return &t
})

// encode returns the coefficients as Valhalla reads them: big-endian numbers of 16 bits in base64.
func (w *week) encode() string {
	var b []byte
	for _, row := range transform() {
		var sum float32
		for i, kmh := range w {
			sum += kmh * row[i]
		}
		b = binary.BigEndian.AppendUint16(b, uint16(int16(math.Round(float64(sum)))))
	}
	return base64.StdEncoding.EncodeToString(b)
}
