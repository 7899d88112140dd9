package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mikelolasagasti/xz"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/must"
)

type profile struct {
	Observations string `yaml:"observations"` // file
	Detectors    struct {
		File   string    `yaml:"file"`
		Column string    `yaml:"column"` // column of the detector codes
		From   [2]string `yaml:"from"`   // columns of the longitude and latitude at which a detector's street starts
		To     [2]string `yaml:"to"`     // columns of the longitude and latitude at which the street ends
		Node   string    `yaml:"node"`   // column of the number of the street's first node
		Length string    `yaml:"length"` // column of the street's length in metres
	} `yaml:"detectors"`
	Send   []string          `yaml:"send"`  // flags for trafficctl send
	Units  map[string]string `yaml:"units"` // units of the measure types
	Replay struct {
		End      string `yaml:"end"` // the date after the last observation
		Time     string `yaml:"time"`
		Detector string `yaml:"detector"`
		Speed    string `yaml:"speed"`
		Count    string `yaml:"count"` // vehicles of an interval; the live traffic has a share of them in each step
	} `yaml:"replay"` // columns of the observations for the live traffic
	Attribution string `yaml:"attribution"`
	name        string
}

func readProfile(path string) (p *profile, err error) {
	defer must.Return(&err)
	f, err := os.Open(path)
	must.Do(err, "cannot read the profile")
	defer f.Close()
	p = &profile{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	must.Do(d.Decode(p), "cannot parse the profile "+path)
	if p.Observations == "" || p.Detectors.File == "" || p.Detectors.Column == "" {
		return nil, fmt.Errorf("profile %s: observations, detectors.file and detectors.column must be set", path)
	}
	return p, nil
}

// eachRow calls do with each row of a CSV file and the row's value in the given column. It returns
// the header, or the first error of do. A row is valid only during the call.
func eachRow(path, column string, do func(row []string, value string) error) (header []string, err error) {
	defer must.Return(&err)
	f := must.Get(os.Open(path))
	defer f.Close()
	var in io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".xz") {
		in = must.Get(xz.NewReader(in, xz.DefaultDictMax))
	}
	rows := csv.NewReader(in)
	header = must.Get(rows.Read())
	rows.ReuseRecord = true
	place := slices.Index(header, column)
	if place < 0 {
		return nil, fmt.Errorf("no column %q", column)
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		must.Do(err)
		must.Do(do(row, row[place]))
	}
}

// dataset is a data set with one street per detector. It is sent as if it were current: all times
// are shifted by whole weeks, so that the data ends more than a day from now. The rows until now
// are sent first, and then the rows of the next 24 hours in real time, repeatedly.
type dataset struct {
	*profile
	directory string
	shift     time.Duration
	load      func() (day, error)
}

// day holds the observations of 24 hours.
type day struct {
	header []string
	rows   map[string][][]string // keyed by time of day, such as 15:04
}

const week = 7 * 24 * time.Hour

// openDataset returns the data set in a directory. The file profile describes it, and the file live
// receives the live traffic before it is sent.
func openDataset(directory, profile, live string, now time.Time) (s source, err error) {
	defer must.Return(&err)
	d := &dataset{profile: must.Get(readProfile(profile)), directory: must.Get(filepath.Abs(directory))}
	end, err := time.Parse(time.DateOnly, d.Replay.End)
	if err != nil {
		return s, fmt.Errorf("profile %s: replay.end %q must be a date such as 2014-10-01", d.name, d.Replay.End)
	}
	d.shift = (now.Sub(end) + 24*time.Hour).Truncate(week) + week
	c := d.Detectors
	s = source{
		about:    d.name + " as if it were current: " + d.Attribution,
		file:     filepath.Join(d.directory, d.Observations),
		flags:    append(slices.Clone(d.Send), "--shift="+d.shift.String()),
		registry: filepath.Join(d.directory, c.File),
		column:   c.Column,
		units:    d.Units,
		columns: fmt.Sprintf("{code: %q, street: %q, fromnode: %q, length: %q, from_lon: %q, from_lat: %q, to_lon: %q, to_lat: %q}",
			c.Column, c.Column, c.Node, c.Length, c.From[0], c.From[1], c.To[0], c.To[1]),
		LiveAbout: fmt.Sprintf("the data from %s on, at its pace, sent every %s",
			now.Add(-d.shift).Format("Monday, 2 January 2006, 15:04"), liveStep),
	}
	found := errors.New("found")
	_, err = eachRow(s.registry, c.Column, func(_ []string, code string) error {
		s.example, s.Street = code, code
		return found
	})
	if !errors.Is(err, found) {
		return s, fmt.Errorf("cannot read the detectors in %s (profile %s): %w", s.registry, d.name, cmp.Or(err, errors.New("no detectors")))
	}
	from := now.Add(-d.shift).Truncate(interval)
	d.load = sync.OnceValues(func() (day, error) { return d.readDay(from) })
	go func() { _, _ = d.load() }() // in advance, because it takes a few seconds
	s.live = func(from time.Time) ([]string, error) {
		return append(append([]string{live}, d.Send...), "--interval="+liveStep.String()), d.replay(from, live)
	}
	return s, nil
}

// readDay reads the 24 hours of data that start at from.
func (d *dataset) readDay(from time.Time) (today day, err error) {
	const layout = "2006-01-02T15:04"
	today.rows = map[string][][]string{}
	first, end := from.Format(layout), from.AddDate(0, 0, 1).Format(layout)
	today.header, err = eachRow(filepath.Join(d.directory, d.Observations), d.Replay.Time, func(row []string, at string) error {
		if len(at) >= len(layout) && at >= first && at < end {
			clock := at[len("2006-01-02T"):len(layout)]
			today.rows[clock] = append(today.rows[clock], slices.Clone(row))
		}
		return nil
	})
	if err == nil && len(today.rows) == 0 {
		err = errors.New("no observations")
	}
	if err != nil {
		return today, fmt.Errorf("cannot read the day to replay, from %s: %w", first, err)
	}
	if at := slices.Index(today.header, d.Replay.Count); at >= 0 {
		for _, rows := range today.rows {
			for _, row := range rows {
				if n, err := strconv.ParseFloat(row[at], 64); err == nil {
					row[at] = strconv.FormatFloat(n*float64(liveStep)/float64(interval), 'g', 6, 64)
				}
			}
		}
	}
	return today, nil
}

// replay writes the rows for the time of day of from to a file, with from as the timestamp, and
// adds two invalid rows. It writes nothing if there are no rows.
func (d *dataset) replay(from time.Time, file string) (err error) {
	defer must.Return(&err)
	today := must.Get(d.load())
	var at [3]int
	for i, name := range []string{d.Replay.Time, d.Replay.Detector, d.Replay.Speed} {
		if at[i] = slices.Index(today.header, name); at[i] < 0 {
			return fmt.Errorf("cannot replay the day: no column %q", name)
		}
	}
	rows := slices.Clone(today.rows[from.Truncate(interval).Format("15:04")])
	if len(rows) == 0 {
		return nil // a gap in the data
	}
	unknown, infinite := slices.Clone(rows[0]), slices.Clone(rows[0])
	unknown[at[1]], infinite[at[2]] = "no-such-detector", "1e999"
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	_ = out.Write(today.header) // writing to a buffer never fails
	for _, row := range append(rows, unknown, infinite) {
		row[at[0]] = from.Format(time.RFC3339)
		_ = out.Write(row)
	}
	out.Flush()
	must.Do(os.WriteFile(file, text.Bytes(), 0o644), "cannot write the rows to replay")
	return nil
}
