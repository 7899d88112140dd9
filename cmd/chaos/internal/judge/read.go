package judge

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trafficd/cmd/internal/launch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// Instance is the product instance of all clients.
const Instance = "chaos"

// Query runs a statement over HTTP, which the daemon does not use.
type Query func(ctx context.Context, sql string) (string, error)

// rowsOf selects floats as bits and times as nanoseconds, to avoid rounding, and without FINAL, to see duplicates.
const rowsOf = `SELECT product_instance, detector_code, measure_type_code, toUnixTimestamp64Nano(timestamp_from), toUnixTimestamp64Nano(timestamp_to),
	reinterpretAsUInt64(value), if(quality IS NULL, '', toString(reinterpretAsUInt64(assumeNotNull(quality)))), batch_id, batch_index, toUnixTimestamp64Nano(received_at), _part
	FROM %s`

// ReadArchive returns all rows of the table.
func ReadArchive(ctx context.Context, query Query, table string) ([]Arrival, error) {
	text, err := query(ctx, fmt.Sprintf(rowsOf, table))
	if err != nil {
		return nil, fmt.Errorf("cannot read the archive: %w", err)
	}
	var rows []Arrival
	for line := range strings.Lines(text) {
		row, err := parseRow(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("cannot read the archive's row %q: %w", line, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// parseRow parses a tab-separated row of rowsOf.
func parseRow(line string) (a Arrival, err error) {
	f := strings.Split(line, "\t")
	if len(f) != 11 {
		return a, fmt.Errorf("%d fields", len(f))
	}
	whole := func(s string) int64 {
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	bits := func(s string) float64 {
		n, e := strconv.ParseUint(s, 10, 64)
		if e != nil {
			err = e
		}
		return math.Float64frombits(n)
	}
	a.Detector, a.Type, a.From, a.To, a.Value, a.Quality = f[1], f[2], whole(f[3]), whole(f[4]), bits(f[5]), math.NaN()
	if f[6] != "" {
		a.Quality = bits(f[6])
	}
	a.Batch, a.Index, a.Received, a.Place = f[7], int(whole(f[8])), whole(f[9]), "part "+f[10]
	if f[0] != Instance {
		a.Odd = "product_instance is " + f[0]
	}
	return a, err
}

// ParseRecords parses the records of the topic. One that is not a measurement becomes an arrival that was never accepted.
func ParseRecords(records []launch.Record) []Arrival {
	partitions := map[string]int32{} // detector → partition
	arrivals := make([]Arrival, len(records))
	for i, r := range records {
		arrivals[i] = parseRecord(r)
		at, known := partitions[arrivals[i].Detector]
		if known && at != r.Partition {
			arrivals[i].Odd = fmt.Sprintf("the detector's records were in partition %d before", at)
		}
		partitions[arrivals[i].Detector] = r.Partition
	}
	return arrivals
}

func parseRecord(r launch.Record) Arrival {
	a := Arrival{Place: fmt.Sprintf("partition %d offset %d", r.Partition, r.Offset), Received: r.Timestamp.UnixMilli()}
	var m trafficdv1.Measurement
	if err := proto.Unmarshal(r.Value, &m); err != nil {
		a.Odd = err.Error()
		return a
	}
	a.Detector, a.Type, a.Value, a.Quality = m.GetDetectorCode(), m.GetMeasureTypeCode(), m.GetValue(), math.NaN()
	a.From, a.To = nanoseconds(m.GetTimestampFrom()), nanoseconds(m.GetTimestampTo())
	if m.Quality != nil {
		a.Quality = m.GetQuality()
	}
	a.Batch, a.Index = r.Header("batch-id"), -1
	if n, err := strconv.Atoi(r.Header("index")); err == nil {
		a.Index = n
	}
	a.Odd = oddities(r, &m)
	return a
}

// oddities compares the fields that a record contains twice.
func oddities(r launch.Record, m *trafficdv1.Measurement) string {
	switch {
	case string(r.Key) != m.GetDetectorCode():
		return fmt.Sprintf("the key is %q", r.Key)
	case m.GetProductInstance() != Instance || r.Header("product-instance") != Instance:
		return fmt.Sprintf("product instance %q, in the header %q", m.GetProductInstance(), r.Header("product-instance"))
	case len(r.Headers) != 3:
		return fmt.Sprintf("%d headers", len(r.Headers))
	}
	return ""
}

func nanoseconds(t *timestamppb.Timestamp) int64 { return t.AsTime().UnixNano() }
