package forecast

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/ulikunitz/xz"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// MaxBytes bounds what is read into memory whole, uncompressed.
const MaxBytes = 4 << 30

// Stdin stands for standard input.
const Stdin = "-"

// Content is what a file of forecasts holds.
type Content struct {
	Forecasts []*pb.StreetForecast // each street once, its last forecast, normalised
	Skipped   int                  // records that cannot be taken
	Remarks   int                  // parts left out or put right
}

// ReadFile reads forecasts as the daemon does; format is one of package
// forecasts, or empty: by the name. Every record with a fault is told to note.
// A file that is broken as a whole is an error.
func ReadFile(ctx context.Context, path, format string, stdin io.Reader, note func(string)) (Content, error) {
	var all Content
	text, err := readAll(path, stdin)
	if err != nil {
		return all, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if format == "" {
		format = forecasts.FormatOf(path)
	}
	place := make(map[string]int)
	for r, err := range forecasts.Read(text, format) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return all, fmt.Errorf("cannot read %s as %s: %w", path, format, err)
		}
		all.add(r, place, note)
	}
	return all, nil
}

func (c *Content) add(r forecasts.Record, place map[string]int, note func(string)) {
	if r.Err != nil {
		c.Skipped++
		note(fmt.Sprintf("%s is skipped: %v", r.Position, r.Err))
		return
	}
	if r.Remarks.Count > 0 {
		c.Remarks += r.Remarks.Count
		note(fmt.Sprintf("%s: %v", r.Position, r.Remarks.First))
	}
	key := string(forecasts.Key(r.Forecast))
	if at, ok := place[key]; ok {
		c.Forecasts[at] = r.Forecast
		return
	}
	place[key] = len(c.Forecasts)
	c.Forecasts = append(c.Forecasts, r.Forecast)
}

// ReadCodes reads location references, one a line; empty lines do not count.
func ReadCodes(path string, stdin io.Reader) ([]string, error) {
	text, err := readAll(path, stdin)
	if err != nil {
		return nil, fmt.Errorf("cannot read the codes of %s: %w", path, err)
	}
	var codes []string
	for line := range bytes.Lines(text) {
		if code := string(bytes.TrimSpace(line)); code != "" {
			codes = append(codes, code)
		}
	}
	if codes == nil {
		return nil, fmt.Errorf("cannot use %s: there is no code in it", path)
	}
	return codes, nil
}

func readAll(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != Stdin {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	unpacked, err := unpack(bufio.NewReaderSize(in, 64<<10))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("longer than %d bytes", MaxBytes)
	}
	return text, err
}

// unpack goes by the first bytes, which do not lie as names do.
func unpack(r *bufio.Reader) (io.Reader, error) {
	start, _ := r.Peek(6)
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case string(start) == "\xfd7zXZ\x00":
		return xz.NewReader(r)
	}
	return r, nil
}

// Write writes forecasts in a format of package forecasts, and tells how many.
// The same forecasts give the same bytes.
func Write(w io.Writer, format string, all iter.Seq[*pb.StreetForecast]) (n int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	form, ok := forms[format]
	if !ok {
		return 0, fmt.Errorf("format %q: write protobuf, json or ndjson", format)
	}
	out.WriteString(form.head)
	var text []byte
	for f := range all {
		if n > 0 {
			out.WriteString(form.between)
		}
		if text, err = form.add(text[:0], f); err != nil {
			return n, fmt.Errorf("cannot write street %s: %w", forecasts.Key(f), err)
		}
		if _, err = out.Write(text); err != nil {
			return n, err
		}
		n++
	}
	out.WriteString(form.tail)
	return n, out.Flush()
}

// form is how a list of forecasts is put together.
type form struct {
	head, between, tail string
	add                 func([]byte, *pb.StreetForecast) ([]byte, error)
}

var forms = map[string]form{
	forecasts.FormatProtobuf: {add: addMessage},
	forecasts.FormatJSON:     {"{\"streetForecast\":[\n", ",\n", "\n]}\n", addJSON},
	forecasts.FormatNDJSON: {add: func(b []byte, f *pb.StreetForecast) ([]byte, error) {
		b, err := addJSON(b, f)
		return append(b, '\n'), err
	}},
}

// addMessage writes field 1 of a StreetForecastResponse.
func addMessage(b []byte, f *pb.StreetForecast) ([]byte, error) {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(proto.Size(f)))
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, f)
}

// addJSON takes out the blanks that protojson puts in at random.
func addJSON(b []byte, f *pb.StreetForecast) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(f)
	if err != nil {
		return b, err
	}
	compact := bytes.NewBuffer(b)
	err = json.Compact(compact, text)
	return compact.Bytes(), err
}

// ErrNothing is returned where a file holds not one forecast that can be taken.
var ErrNothing = errors.New("there is not one good forecast in it")

// All gives a slice in the form that Write takes.
func All(list []*pb.StreetForecast) iter.Seq[*pb.StreetForecast] { return slices.Values(list) }
