package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/dev/must"
	"trafficd/cmd/dev/traffic/town"
	"trafficd/pipeline/lib/replace"
	"trafficd/schemas/contract"
)

// source is the traffic to send and the registry of its detectors.
type source struct {
	about     string                                 // description, for messages
	file      string                                 // the file to send
	make      func(ctx context.Context) error        // creates file; nil if it exists
	flags     []string                               // flags for trafficctl send
	registry  string                                 // path of the registry, a CSV file
	column    string                                 // the registry's column of detector codes
	columns   string                                 // the forecaster's detectors.columns, as YAML; empty = the defaults
	units     map[string]string                      // units of the measure types
	example   string                                 // a detector code
	Street    string                                 // the street of example
	Map       string                                 // the file with a map of the streets; empty: there is none
	LiveAbout string                                 // description of the live traffic
	live      func(from time.Time) ([]string, error) // the flags for trafficctl send and the file with the liveStep from a time on
}

const defaultProfile = "deployments/quickstart/aarhus.yaml"

func (q *quickstart) profilePath() string {
	return cmp.Or(q.profile, filepath.Join(q.root, defaultProfile))
}

// checkData returns an error if the directory --data lacks a file. Later steps take long to fail.
func (q *quickstart) checkData(context.Context) error {
	if q.data == "" {
		return nil
	}
	p, err := readProfile(q.profilePath())
	if err != nil {
		return err
	}
	for _, file := range []string{p.Observations, p.Detectors.File} {
		if _, err := os.Stat(filepath.Join(q.data, file)); err != nil {
			return fmt.Errorf("cannot find the data set: %w\n%s must contain %s and %s; see %s", err,
				q.data, p.Observations, p.Detectors.File, q.short(q.profilePath()))
		}
	}
	return nil
}

// findSource sets q.source to the data set or, without --data, to a synthetic town.
func (q *quickstart) findSource(ctx context.Context) (err error) {
	defer must.Return(&err)
	if q.data != "" {
		q.source, err = openDataset(q.data, q.profilePath(), q.path("live.csv"), time.Now().UTC())
		return err
	}
	now := time.Now().UTC()
	offset := must.Get(q.utcOffset(now))
	c := town.DefaultMeasurementConfig()
	c.Streets, c.Types, c.AllTypes, c.UTCOffset = q.detectors, []string{"speed", "flow"}, true, offset.Hours()
	write := func(ctx context.Context, path string, c town.MeasurementConfig) error {
		network, err := town.New(c)
		if err != nil {
			return err
		}
		return replace.File(path, 0o666, func(w io.Writer) error {
			if filepath.Ext(path) != ".gz" {
				_, err := network.Write(ctx, w)
				return err
			}
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // valid
			_, err := network.Write(ctx, z)
			return errors.Join(err, z.Close())
		})
	}
	q.source = source{
		about: fmt.Sprintf("%d × 24 h of a synthetic town with %d detectors until now, some items invalid on purpose", q.days, q.detectors),
		file:  q.path("traffic.ndjson.gz"),
		make: func(ctx context.Context) error {
			c := c
			c.From, c.Days, c.Interval, c.ErrorRate = now.Truncate(interval).AddDate(0, 0, -q.days), q.days, interval, 0.001
			return write(ctx, q.path("traffic.ndjson.gz"), c)
		},
		registry:  q.path("detectors.csv"),
		column:    "detectorCode",
		units:     map[string]string{"speed": "km/h", "flow": "veh/h"},
		example:   "D1-1",
		Street:    "1",
		Map:       "town.osm.pbf",
		LiveAbout: fmt.Sprintf("the town's live traffic; its local time is %s", now.Add(offset).Format("15:04")),
		live: func(from time.Time) ([]string, error) {
			c := c
			c.From, c.Interval, c.Count, c.ErrorRate = from, liveStep, 1, 0.003
			path := q.path("live.ndjson")
			return []string{path}, write(ctx, path, c)
		},
	}
	network := must.Get(town.New(c))
	must.Do(replace.File(q.path(q.source.Map), 0o666, network.WriteMap))
	return replace.File(q.source.registry, 0o666, network.WriteRegistry)
}

// interval is the measurement interval of the traffic before the start.
const interval = 5 * time.Minute

// utcOffset returns the UTC offset of the town's local time. The first start chooses it so that the
// user sees the morning rush begin. Later starts keep it, because the forecaster has learned from
// traffic with this offset.
func (q *quickstart) utcOffset(now time.Time) (offset time.Duration, err error) {
	const file, rush = "clocks", 7*time.Hour + 15*time.Minute
	text, err := os.ReadFile(q.path(file))
	if err == nil {
		if offset, err = time.ParseDuration(string(text)); err == nil {
			return offset, nil
		}
	}
	offset = (rush - now.Sub(now.Truncate(24*time.Hour))).Round(time.Minute)
	if offset < -12*time.Hour {
		offset += 24 * time.Hour
	}
	if err = os.WriteFile(q.path(file), []byte(offset.String()), 0o644); err != nil {
		return 0, fmt.Errorf("cannot write the town's UTC offset: %w", err)
	}
	return offset, nil
}

// writeSample writes a batch with a valid and an invalid item. A command in the report sends it.
func (q *quickstart) writeSample() error {
	hour := time.Now().UTC().Truncate(time.Hour)
	m := contract.Measurement{MeasureTypeCode: "speed", TimestampFrom: hour.Add(-time.Hour), TimestampTo: hour, Value: "48.5"}
	var items [][]byte
	for _, m.DetectorCode = range []string{q.source.example, "no-such-detector"} {
		items = append(items, m.AppendJSON([]byte("\n  ")))
	}
	if err := os.WriteFile(q.path(sampleFile), append(contract.Batch(items...), '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write the sample: %w", err)
	}
	return nil
}

// liveStep is the measurement interval of the live traffic, in whole seconds.
const liveStep = 5 * time.Second

// live sends each liveStep's measurements as soon as it has passed, until ctx is done. It continues
// after an error, which it prints unless it is the same as the last one.
func (q *quickstart) live(ctx context.Context) {
	if q.feed != "" {
		if q.authority != nil {
			q.authority.goLive()
		}
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(liveStep)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		args, err := q.source.live(time.Now().UTC().Truncate(liveStep).Add(-liveStep))
		if err == nil { // in small batches
			args = append(append([]string{"send"}, args...),
				"--url", "http://"+q.daemon.API, "--key-file", q.path(keyFile), "--quiet", "--batch", "250")
			_, _, err = q.trafficctl(ctx, nil, args...)
		}
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			say("live traffic: %v; will retry", err)
		}
	}
}
