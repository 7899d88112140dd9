package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/cmd/forecaster/config"
)

const formatMETRLA = "metr-la"

// detectorTable holds a file with a row per interval and a column per sensor.
type detectorTable struct {
	sensors []string
	times   []time.Time
	values  [][]float64 // indexed by time; 0: missing
}

// split returns the end of the first 80% of the rows, which the published protocol uses for
// training and validation.
func (t *detectorTable) split() time.Time { return t.times[len(t.times)*8/10] }

func (t *detectorTable) end() time.Time { return t.times[len(t.times)-1].Add(5 * time.Minute) }

// readMETRLA reads CSV as pandas writes it: a header with the sensors, then local times and speeds.
// The published file is HDF5, which pandas converts.
func readMETRLA(path string) (t *detectorTable, err error) {
	fail := func(err error) (*detectorTable, error) { return nil, fmt.Errorf("cannot read %s: %w", path, err) }
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the values: %w", err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return fail(err)
	}
	if len(header) < 2 {
		return fail(errors.New("the header must have a column of times and one per sensor, as in the CSV that pandas writes with to_csv"))
	}
	t = &detectorTable{sensors: slices.Clone(header[1:])}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fail(err)
		}
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %q is not a time such as 2012-03-01 00:00:00", path, row[0])
		}
		values := make([]float64, len(t.sensors))
		for i, text := range row[1:] {
			if text == "" {
				continue
			}
			if values[i], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("cannot read %s: %q is not a speed", path, text)
			}
		}
		t.times, t.values = append(t.times, at), append(t.values, values)
	}
	if len(t.times) < 5 {
		return nil, fmt.Errorf("cannot evaluate %s: it has only %d rows", path, len(t.times))
	}
	return t, nil
}

// insert creates a table with the columns of the archive and inserts the values.
func (t *detectorTable) insert(ctx context.Context, conn driver.Conn, table string, m config.Model) error {
	err := conn.Exec(ctx, "CREATE TABLE "+table+` (product_instance LowCardinality(String), detector_code LowCardinality(String),
		measure_type_code LowCardinality(String), timestamp_from DateTime64(9, 'UTC'), timestamp_to DateTime64(9, 'UTC'), value Float64)
		ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(timestamp_from)
		ORDER BY (product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to)`)
	if err == nil { // the file does not say its unit
		err = conn.Exec(ctx, "CREATE TABLE "+table+"_measure_types (measure_type_code String, unit String) "+
			"ENGINE = MergeTree ORDER BY measure_type_code")
	}
	measure := strings.TrimSuffix(m.Measure, ".*")
	for n := 0; n < len(t.times) && err == nil; {
		var batch driver.Batch
		if batch, err = conn.PrepareBatch(ctx, "INSERT INTO "+table); err != nil {
			return err
		}
		for end := min(n+1000, len(t.times)); n < end && err == nil; n++ {
			for i, v := range t.values[n] {
				if v > 0 && err == nil {
					err = batch.Append(m.ProductInstance, t.sensors[i], measure, t.times[n], t.times[n].Add(m.Interval), v)
				}
			}
		}
		if err == nil {
			err = batch.Send()
		}
	}
	return err
}
