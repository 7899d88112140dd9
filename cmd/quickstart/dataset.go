package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ulikunitz/xz"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// profile describes how to read a data set. Names in square brackets in the comments are columns.
type profile struct {
	Observations string   `yaml:"observations"`
	Columns      []string `yaml:"columns"` // the header, which identifies the data set
	Detectors    struct {
		File   string    `yaml:"file"`
		Column string    `yaml:"column"` // [] of the codes
		From   [2]string `yaml:"from"`   // [longitude, latitude] of the start of a detector's street
		To     [2]string `yaml:"to"`     // and of its end
		Node   string    `yaml:"node"`   // [] of the number of its first node
		Length string    `yaml:"length"` // [] in metres
		Speed  string    `yaml:"speed"`  // [] in km/h, until one is measured
	} `yaml:"detectors"`
	Send   []string `yaml:"send"` // flags of trafficctl send
	Replay struct {
		Day      string `yaml:"day"` // the beginning of its timestamps
		Time     string `yaml:"time"`
		Detector string `yaml:"detector"`
		Speed    string `yaml:"speed"`
	} `yaml:"replay"` // what is sent after everything was: columns of the observations
	Attribution string `yaml:"attribution"`
	name        string
}

// profileDir has one file for each known data set.
const profileDir = "deployments/quickstart"

// findProfile returns the profile for the data in dir: the requested one (a name or a file), the one with the directory's
// name, or the one whose columns match the observations' header.
func findProfile(root, dir, requested string) (*profile, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: specify the one with the observations (make run DATA=directory)", dir)
	}
	known := filepath.Join(root, profileDir)
	if requested != "" {
		if !strings.ContainsAny(requested, "/.") {
			requested = filepath.Join(known, requested+".yaml")
		}
		return readProfile(requested)
	}
	named := filepath.Join(known, filepath.Base(filepath.Clean(dir))+".yaml")
	if exists(named) {
		return readProfile(named)
	}
	files, err := filepath.Glob(filepath.Join(known, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the profiles: %w", err)
	}
	for _, file := range files {
		p, err := readProfile(file)
		if err != nil {
			return nil, err
		}
		if header, err := eachRow(filepath.Join(dir, p.Observations), nil, nil); err == nil && slices.Equal(header, p.Columns) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no profile for %s: no file in %s has its name or its columns; write one and select it with --profile", dir, known)
}

func readProfile(path string) (*profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the profile: %w", err)
	}
	defer f.Close()
	p := &profile{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("cannot parse the profile %s: %w", path, err)
	}
	if p.Observations == "" || p.Detectors.File == "" || p.Detectors.Column == "" {
		return nil, fmt.Errorf("profile %s: observations, detectors.file and detectors.column must be set", path)
	}
	return p, nil
}

// eachRow calls do with the rows of a CSV file and their values of some columns, and returns the header. The slices are valid
// during the call. If do is nil, only the header is read.
func eachRow(path string, columns []string, do func(row, values []string) error) (header []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".xz") {
		if in, err = xz.NewReader(in); err != nil {
			return nil, err
		}
	}
	rows := csv.NewReader(in)
	if header, err = rows.Read(); err != nil || do == nil {
		return header, err
	}
	rows.ReuseRecord = true
	places, values := make([]int, len(columns)), make([]string, len(columns))
	for i, name := range columns {
		if places[i] = slices.Index(header, name); places[i] < 0 {
			return header, fmt.Errorf("no column %q", name)
		}
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		for i := range places {
			if err == nil {
				values[i] = row[places[i]]
			}
		}
		if err == nil {
			err = do(row, values)
		}
		if err != nil {
			return header, err
		}
	}
}

// dataset is a data set whose streets are those of its detectors. Once everything is sent, it sends one day again and again.
type dataset struct {
	*profile
	folder  string
	streets map[string]*pb.StreetForecast // by detector code; each has one period, with the last speed
	load    func() (day, error)
	next    int // index of the times of the day
}

// day holds the observations of a day.
type day struct {
	header []string
	times  []string // in order
	rows   map[string][][]string
}

// openDataset returns the data set in a folder. It writes the rows of liveStep to the file live.
func openDataset(root, folder, requested, live string) (s source, err error) {
	d := &dataset{streets: map[string]*pb.StreetForecast{}}
	if d.profile, err = findProfile(root, folder, requested); err != nil {
		return s, err
	}
	if d.folder, err = filepath.Abs(folder); err != nil {
		return s, fmt.Errorf("cannot find the data: %w", err)
	}
	s = source{
		about:          d.name + ": " + d.Attribution,
		file:           filepath.Join(d.folder, d.Observations),
		flags:          d.Send,
		registry:       filepath.Join(d.folder, d.Detectors.File),
		column:         d.Detectors.Column,
		ForecastsAbout: "the last speed of each street carried forward for two hours, as there is no forecaster",
		forecasts:      d.forecasts,
		LiveAbout:      fmt.Sprintf("%s again, from 06:00, one interval every %s and with timestamps of now", d.Replay.Day, liveStep),
	}
	if _, err := os.Stat(s.file); err != nil {
		return s, fmt.Errorf("cannot find the data (profile %s): %w", d.name, err)
	}
	if s.example, err = d.readStreets(s.registry); err != nil {
		return s, fmt.Errorf("cannot read the detectors in %s (profile %s): %w", s.registry, d.name, err)
	}
	d.load = sync.OnceValues(d.readDay)
	go func() { _, _ = d.load() }() // takes some seconds
	s.live = func(from time.Time) ([]string, error) {
		return append(append([]string{"send", live}, d.Send...), "--interval="+liveStep.String()), d.replay(from, live)
	}
	return s, nil
}

// readStreets reads the detectors and returns the code of the first.
func (d *dataset) readStreets(path string) (first string, err error) {
	c := d.Detectors
	columns := []string{c.Column, c.Node, c.Speed, c.Length, c.From[0], c.From[1], c.To[0], c.To[1]}
	_, err = eachRow(path, columns, func(_, values []string) (err error) {
		var n [8]float64
		for i := range n {
			if n[i], err = strconv.ParseFloat(values[i], 64); err != nil {
				return fmt.Errorf("detector %q: %w", values[0], err)
			}
		}
		const majorRoad = 3
		location, err := openlr.Encode(openlr.Straight([2]float64{n[4], n[5]}, [2]float64{n[6], n[7]}, int(n[3]), majorRoad))
		if err != nil {
			return fmt.Errorf("detector %q: %w", values[0], err)
		}
		d.streets[values[0]] = &pb.StreetForecast{
			Street: int32(n[0]), Fromnode: int32(n[1]), OpenLRcode: location, Forecast: []*pb.ForecastPeriod{{Speed: n[2]}},
		}
		first = cmp.Or(first, values[0])
		return nil
	})
	return first, err
}

// forecasts writes the last speed of each street as its forecast for two hours.
func (d *dataset) forecasts(_ context.Context, from time.Time, file string) error {
	layer := pb.StreetForecastResponse{}
	for _, code := range slices.Sorted(maps.Keys(d.streets)) {
		p := d.streets[code].Forecast[0]
		p.Start, p.End = from.Format(time.RFC3339), from.Add(2*time.Hour).Format(time.RFC3339)
		layer.StreetForecast = append(layer.StreetForecast, d.streets[code])
	}
	text, err := proto.Marshal(&layer)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the forecasts: %w", err)
	}
	return nil
}

// readDay reads the day that is replayed.
func (d *dataset) readDay() (today day, err error) {
	today.rows = map[string][][]string{}
	r := d.Replay
	today.header, err = eachRow(filepath.Join(d.folder, d.Observations), []string{r.Time, r.Detector, r.Speed}, func(row, values []string) error {
		if at := values[0]; strings.HasPrefix(at, r.Day) {
			today.rows[at] = append(today.rows[at], slices.Clone(row))
		}
		return nil
	})
	if err == nil && len(today.rows) == 0 {
		err = errors.New("it has no observations")
	}
	if err != nil {
		return today, fmt.Errorf("cannot read the day %s to replay: %w", r.Day, err)
	}
	today.times = slices.Sorted(maps.Keys(today.rows))
	d.next = len(today.times) / 4
	return today, nil
}

// replay writes the next interval of the day to a file, with other timestamps and with two invalid rows, and takes its speeds
// over.
func (d *dataset) replay(from time.Time, file string) error {
	today, err := d.load()
	if err != nil {
		return err
	}
	var at [3]int
	for i, name := range []string{d.Replay.Time, d.Replay.Detector, d.Replay.Speed} {
		at[i] = slices.Index(today.header, name)
	}
	rows := today.rows[today.times[d.next]]
	d.next = (d.next + 1) % len(today.times)
	unknown, infinite := slices.Clone(rows[0]), slices.Clone(rows[0])
	unknown[at[1]], infinite[at[2]] = "no-such-detector", "1e999"
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	_ = out.Write(today.header) // a buffer cannot fail
	for _, row := range append(slices.Clone(rows), unknown, infinite) {
		row[at[0]] = from.Format(time.RFC3339)
		_ = out.Write(row)
		speed, err := strconv.ParseFloat(row[at[2]], 64)
		if street := d.streets[row[at[1]]]; street != nil && err == nil {
			street.Forecast[0].Speed = speed
		}
	}
	out.Flush()
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot write the rows to replay: %w", err)
	}
	return nil
}
