package forecasts

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// rowScan holds a row of the result, with each value in the Go type of its column.
type rowScan struct {
	into   []any          // pointers for Scan, one per column
	column map[string]any // the same pointers by column name
}

// The columns that are used. Other columns are ignored.
var (
	neededColumns   = []string{"street", "fromnode", "start", "end", "speed"}
	optionalColumns = []string{
		"openLRcode", "flow_valid", "speed_valid", "flow", "updated",
		"speed_low", "speed_high", "basis", "closed", "length", "free_flow_speed",
	}
)

func newRowScan(columns []driver.ColumnType) (*rowScan, error) {
	s := &rowScan{column: make(map[string]any)}
	for _, c := range columns {
		into := reflect.New(c.ScanType()).Interface()
		s.into = append(s.into, into)
		if _, duplicate := s.column[c.Name()]; duplicate && slices.Contains(slices.Concat(neededColumns, optionalColumns), c.Name()) {
			return nil, fmt.Errorf("the result has a duplicate column %s", c.Name())
		}
		s.column[c.Name()] = into
	}
	for _, name := range neededColumns {
		if s.column[name] == nil {
			return nil, fmt.Errorf("the result has no column %s; required columns: %v, optional columns: %v", name, neededColumns, optionalColumns)
		}
	}
	return s, nil
}

// row converts the scanned row to a street with one period. By default, openLRcode is empty, the
// speed is valid, and the flow is invalid.
func (s *rowScan) row() (f *pb.StreetForecast, updated time.Time, err error) {
	p := &pb.ForecastPeriod{SpeedValid: proto.Bool(true)}
	f = &pb.StreetForecast{Forecast: []*pb.ForecastPeriod{p}}
	err = errors.Join(
		set(s, "street", &f.Street, asInt32),
		set(s, "fromnode", &f.Fromnode, asInt32),
		set(s, "openLRcode", &f.OpenLRcode, asString),
		set(s, "start", &p.Start, asTimeText),
		set(s, "end", &p.End, asTimeText),
		set(s, "flow_valid", &p.FlowValid, asBool),
		set(s, "speed_valid", p.SpeedValid, asBool),
		set(s, "speed", &p.Speed, asFloat),
		set(s, "flow", &p.Flow, asFloat),
		set(s, "updated", &updated, asTime),
		set(s, "speed_low", &p.SpeedLow, pointer(asFloat)),
		set(s, "speed_high", &p.SpeedHigh, pointer(asFloat)),
		set(s, "basis", &p.Basis, pointer(asString)),
		set(s, "closed", &p.Closed, pointer(asBool)),
		set(s, "length", &f.Length, pointer(asFloat)),
		set(s, "free_flow_speed", &f.FreeFlowSpeed, pointer(asFloat)),
	)
	return f, updated, err
}

// pointer returns a conversion to a pointer, for members that may be absent.
func pointer[T any](as func(reflect.Value) (T, error)) func(reflect.Value) (*T, error) {
	return func(v reflect.Value) (*T, error) {
		value, err := as(v)
		return &value, err
	}
}

// set stores a column's value, converted by as. If an optional column is missing or null, *into
// keeps its value.
func set[T any](s *rowScan, name string, into *T, as func(reflect.Value) (T, error)) (err error) {
	v := reflect.ValueOf(s.column[name])
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch {
	case v.IsValid():
		*into, err = as(v)
	case slices.Contains(neededColumns, name):
		err = errors.New("is null")
	}
	if err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	return nil
}

func asInt32(v reflect.Value) (int32, error) {
	switch {
	case v.CanInt() && v.Int() >= math.MinInt32 && v.Int() <= math.MaxInt32:
		return int32(v.Int()), nil
	case v.CanUint() && v.Uint() <= math.MaxInt32:
		return int32(v.Uint()), nil
	}
	return 0, fmt.Errorf("is %.64q: %w", fmt.Sprint(v), ErrOutOfRange)
}

func asBool(v reflect.Value) (bool, error) {
	switch {
	case v.Kind() == reflect.Bool:
		return v.Bool(), nil
	case v.CanUint() && v.Uint() <= 1:
		return v.Uint() == 1, nil
	case v.CanInt() && v.Int()&^1 == 0:
		return v.Int() == 1, nil
	}
	return false, fmt.Errorf("is %.64q, must be a boolean", fmt.Sprint(v))
}

// asFloat also accepts decimals, which it converts from their text.
func asFloat(v reflect.Value) (float64, error) {
	switch {
	case v.CanFloat():
		return v.Float(), nil
	case v.CanInt():
		return float64(v.Int()), nil
	case v.CanUint():
		return float64(v.Uint()), nil
	}
	if decimal, ok := v.Interface().(fmt.Stringer); ok {
		if n, err := strconv.ParseFloat(decimal.String(), 64); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("is %.64q, must be a number", fmt.Sprint(v))
}

func asString(v reflect.Value) (string, error) {
	if v.Kind() == reflect.String {
		return v.String(), nil
	}
	return "", fmt.Errorf("is %.64q, must be a string", fmt.Sprint(v))
}

func asTime(v reflect.Value) (time.Time, error) {
	if t, ok := v.Interface().(time.Time); ok {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("is %.64q, must be a DateTime", fmt.Sprint(v))
}

// asTimeText accepts DateTime and DateTime64 in any zone, and text, which Normalise checks.
func asTimeText(v reflect.Value) (string, error) {
	if t, ok := v.Interface().(time.Time); ok {
		return formatTime(t)
	}
	return asString(v)
}
