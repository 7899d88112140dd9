package publish

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// Write writes forecasts in a format of package forecasts and returns their number. The same
// forecasts produce the same bytes.
func Write(w io.Writer, format string, all iter.Seq[*pb.StreetForecast]) (n int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	e, ok := encodings[format]
	if !ok {
		return 0, fmt.Errorf("--format %q must be protobuf, json or ndjson", format)
	}
	out.WriteString(e.head)
	var text []byte
	for f := range all {
		if n > 0 {
			out.WriteString(e.between)
		}
		if text, err = e.appendForecast(text[:0], f); err != nil {
			return n, fmt.Errorf("cannot encode street %s: %w", forecasts.Key(f), err)
		}
		if _, err = out.Write(text); err != nil {
			return n, err
		}
		n++
	}
	out.WriteString(e.tail)
	return n, out.Flush()
}

type encoding struct {
	head, between, tail string
	appendForecast      func([]byte, *pb.StreetForecast) ([]byte, error)
}

var encodings = map[string]encoding{
	forecasts.FormatProtobuf: {appendForecast: func(b []byte, f *pb.StreetForecast) ([]byte, error) { // field 1 of StreetForecastResponse
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(proto.Size(f)))
		return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, f)
	}},
	forecasts.FormatJSON: {"{\"streetForecast\":[\n", ",\n", "\n]}\n", appendJSON},
	forecasts.FormatNDJSON: {appendForecast: func(b []byte, f *pb.StreetForecast) ([]byte, error) {
		b, err := appendJSON(b, f)
		return append(b, '\n'), err
	}},
}

// appendJSON appends compact JSON, because protojson inserts random spaces.
func appendJSON(b []byte, f *pb.StreetForecast) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(f)
	if err != nil {
		return b, err
	}
	compact := bytes.NewBuffer(b)
	err = json.Compact(compact, text)
	return compact.Bytes(), err
}
