package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/internal/must"
)

const (
	formatMETRLA = "metr-la"
	hdf5         = "\x89HDF\r\n\x1a\n" // the first bytes of an HDF5 file
)

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
// It converts HDF5, the published format, with pandas.
func readMETRLA(path string) (t *detectorTable, err error) {
	defer must.Return(&err)
	file, err := os.Open(path)
	must.Do(err, "cannot read the values")
	defer file.Close()
	buffered := bufio.NewReader(file)
	if start, _ := buffered.Peek(len(hdf5)); string(start) == hdf5 {
		// No Go library reads the HDF5 that pandas writes, and users of the file usually have pandas.
		text, err := exec.Command("python3", "-c", "import pandas, sys; pandas.read_hdf(sys.argv[1]).to_csv(sys.stdout)", path).Output()
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: it is HDF5, not CSV, and python3 cannot convert it with pandas: %w; "+
				"install pandas (pip install pandas tables), or convert the file elsewhere:\n"+
				"  import pandas\n  pandas.read_hdf(%q).to_csv(%[4]q)\nthen pass --input %[4]s",
				path, err, path, strings.TrimSuffix(path, ".h5")+".csv")
		}
		buffered.Reset(bytes.NewReader(text))
	}
	r := csv.NewReader(buffered)
	r.ReuseRecord = true
	header, err := r.Read()
	must.Do(err, "cannot read "+path)
	if len(header) < 2 {
		return nil, fmt.Errorf("cannot read %s: the header must have a column of times and one per sensor", path)
	}
	t = &detectorTable{sensors: slices.Clone(header[1:])}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(err, "cannot read "+path)
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
