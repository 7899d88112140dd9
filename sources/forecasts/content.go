package forecasts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Record is a forecast in a file or query result, or the reason why it is skipped.
type Record struct {
	Position string             // position in the content, for error messages
	Forecast *pb.StreetForecast // normalised; nil if Err is set
	Remarks  Remarks
	Err      error // the reason why the record is skipped, or nil
}

// Read returns an iterator over the forecasts in the uncompressed content of a file, in order. If
// the content as a whole is invalid, the iterator finally yields an empty record and an error, and
// records may be missing. The caller owns the forecasts, which do not refer to content. Periods
// with a valid speed over maxSpeed are dropped.
func Read(content []byte, format string, maxSpeed float64) iter.Seq2[Record, error] {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	return func(yield func(Record, error) bool) {
		emit := func(position string, text []byte) error {
			r := Record{Position: position}
			parse := parseJSON
			if format == FormatProtobuf {
				parse = parseProtobuf
			}
			r.Err = attempt(func() (err error) {
				r.Forecast, r.Remarks, err = parse(text, maxSpeed)
				return err
			})
			if r.Err != nil {
				r.Forecast = nil
			}
			if !yield(r, nil) {
				return errStopped
			}
			return nil
		}
		err := fmt.Errorf("unknown format %q", format)
		switch format {
		case FormatProtobuf:
			err = eachMessage(content, emit)
		case FormatJSON:
			err = eachElement(content, emit)
		case FormatNDJSON:
			err = eachLine(content, emit)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Record{}, err)
		}
	}
}

// emitter yields a record, or returns errStopped if the caller of Read has stopped iterating.
type emitter = func(position string, text []byte) error

var errStopped = errors.New("stopped")

// eachMessage yields the messages of a StreetForecastResponse one at a time, so that an invalid
// message does not affect the others.
func eachMessage(content []byte, emit emitter) error {
	size := len(content)
	for n := 0; len(content) > 0; {
		at := size - len(content)
		field, kind, tag := protowire.ConsumeTag(content)
		length := tag
		if tag >= 0 {
			length = protowire.ConsumeFieldValue(field, kind, content[tag:])
		}
		if length < 0 {
			return fmt.Errorf("not a StreetForecastResponse, or a truncated one, at byte %d: %w", at, protowire.ParseError(length))
		}
		if field == 1 {
			if kind != protowire.BytesType {
				return fmt.Errorf("not a StreetForecastResponse: field 1 at byte %d is not a message", at)
			}
			message, _ := protowire.ConsumeBytes(content[tag:])
			if err := emit(fmt.Sprintf("streetForecast[%d]", n), message); err != nil {
				return err
			}
			n++
		}
		content = content[tag+length:]
	}
	return nil
}

// eachElement yields the forecasts of a StreetForecastResponse or of a bare array. It decodes one
// element at a time, because the decoded document would need many times as much memory as the
// content.
func eachElement(content []byte, emit emitter) error {
	d := json.NewDecoder(bytes.NewReader(content))
	err := decodeResponse(d, emit)
	if err == nil {
		if _, err = d.Token(); err == nil {
			return errors.New("not a StreetForecastResponse: unexpected data after the JSON text")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("invalid or truncated JSON, at byte %d: %w", len(content), io.ErrUnexpectedEOF)
	case errors.As(err, &syntax):
		return fmt.Errorf("invalid or truncated JSON, after byte %d: %w", d.InputOffset(), err)
	}
	return err
}

func decodeResponse(d *json.Decoder, emit emitter) error {
	opening, err := d.Token()
	if err != nil {
		return err
	}
	if opening == json.Delim('[') {
		return decodeArray(d, emit)
	}
	if opening != json.Delim('{') {
		return fmt.Errorf("not a StreetForecastResponse: %.64q is neither an object nor an array", fmt.Sprint(opening))
	}
	found := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name != "streetForecast" {
			if err := d.Decode(new(json.RawMessage)); err != nil {
				return err
			}
			continue
		}
		if found {
			return errors.New(`not a StreetForecastResponse: duplicate member "streetForecast"`)
		}
		found = true
		opening, err := d.Token()
		if err != nil {
			return err
		}
		if opening != json.Delim('[') {
			return errors.New(`not a StreetForecastResponse: "streetForecast" is not an array`)
		}
		if err := decodeArray(d, emit); err != nil {
			return err
		}
	}
	if _, err = d.Token(); err == nil && !found {
		err = errors.New(`not a StreetForecastResponse: missing array "streetForecast"`)
	}
	return err
}

// decodeArray decodes the rest of an array whose opening bracket has been read.
func decodeArray(d *json.Decoder, emit emitter) error {
	var text json.RawMessage
	for i := 0; d.More(); i++ {
		if err := d.Decode(&text); err != nil {
			return err
		}
		if err := emit(fmt.Sprintf("streetForecast[%d]", i), text); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// eachLine yields the non-empty lines. It returns an error if the content seems to be truncated,
// because the last line has no line break and is not valid JSON.
func eachLine(content []byte, emit emitter) error {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if line[len(line)-1] != '\n' && !json.Valid(text) {
			return fmt.Errorf("truncated NDJSON: the last line (%d) has no line break and is not valid JSON", n)
		}
		if err := emit(fmt.Sprintf("line %d", n), text); err != nil {
			return err
		}
	}
	return nil
}
