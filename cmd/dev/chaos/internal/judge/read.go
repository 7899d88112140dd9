package judge

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// Instance returns the product instance of a detector, such as chaos-01 for detector chaos-01-007.
// Each instance has one client.
func Instance(detector string) string { return detector[:max(0, strings.LastIndexByte(detector, '-'))] }

// arrivalsFrom selects the fields of Arrival and the product instance. Times are in nanoseconds
// to avoid rounding. FINAL is omitted so that duplicates remain visible.
const arrivalsFrom = `SELECT detector_code AS Detector, measure_type_code AS Type, value AS Value, ifNull(quality, nan) AS Quality,
	toUnixTimestamp64Nano(timestamp_from) AS From, toUnixTimestamp64Nano(timestamp_to) AS To,
	toUnixTimestamp64Nano(received_at) AS Received, toString(batch_id) AS Batch, toInt64(batch_index) AS Index,
	concat('part ', _part) AS Position, product_instance AS ProductInstance
	FROM `

// ReadArchive returns all rows of a server's table.
func ReadArchive(ctx context.Context, address, table string) (rows []Arrival, err error) {
	defer must.Return(&err, "cannot read the archive")
	conn := must.Get(ch.Open(&ch.Options{Addr: []string{address}}))
	defer func() { _ = conn.Close() }()
	var found []struct {
		Arrival
		ProductInstance string
	}
	must.Do(conn.Select(ctx, &found, arrivalsFrom+table))
	for _, r := range found {
		if r.ProductInstance != Instance(r.Detector) {
			r.Defect = "product_instance is " + r.ProductInstance
		}
		rows = append(rows, r.Arrival)
	}
	return rows, nil
}

// ParseRecords parses the records of the topic. A record that is not a measurement becomes an
// arrival with an empty detector code, so it matches no accepted item.
func ParseRecords(records []launch.Record) []Arrival {
	partitions := map[string]int32{} // detector → partition
	arrivals := make([]Arrival, len(records))
	for i, r := range records {
		arrivals[i] = parseRecord(r)
		at, known := partitions[arrivals[i].Detector]
		if known && at != r.Partition {
			arrivals[i].Defect = fmt.Sprintf("earlier records of the detector are in partition %d", at)
		}
		partitions[arrivals[i].Detector] = r.Partition
	}
	return arrivals
}

func parseRecord(r launch.Record) Arrival {
	a := Arrival{Position: fmt.Sprintf("partition %d offset %d", r.Partition, r.Offset), Received: r.Timestamp.UnixMilli()}
	var m trafficdv1.Measurement
	if err := proto.Unmarshal(r.Value, &m); err != nil {
		a.Defect = err.Error()
		return a
	}
	a.Detector, a.Type, a.Value, a.Quality = m.GetDetectorCode(), m.GetMeasureTypeCode(), m.GetValue(), math.NaN()
	a.From, a.To = m.GetTimestampFrom().AsTime().UnixNano(), m.GetTimestampTo().AsTime().UnixNano()
	if m.Quality != nil {
		a.Quality = m.GetQuality()
	}
	a.Batch, a.Index = r.Header("batch-id"), -1
	if n, err := strconv.ParseInt(r.Header("index"), 10, 64); err == nil {
		a.Index = n
	}
	switch { // the key and the headers repeat fields of the message
	case string(r.Key) != m.GetDetectorCode():
		a.Defect = fmt.Sprintf("the key is %q, not the detector code", r.Key)
	case m.GetProductInstance() != Instance(a.Detector) || r.Header("product-instance") != m.GetProductInstance():
		a.Defect = fmt.Sprintf("the product instance is %q, in the header %q", m.GetProductInstance(), r.Header("product-instance"))
	case len(r.Headers) != 3:
		a.Defect = fmt.Sprintf("%d headers instead of 3", len(r.Headers))
	}
	return a
}
