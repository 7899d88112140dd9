package forecasts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Record is one forecast of a file and what is to be said about it.
type Record struct {
	Position string             // where it stands, for a person
	Forecast *pb.StreetForecast // normalised; nil if Err is not
	Remarks  Remarks
	Err      error // why it cannot be taken
}

// Read gives the forecasts of a file's uncompressed content, in its order. The
// error, given last and without a record, is for content that is broken as a
// whole: what came before it may be a part only. The forecasts belong to the
// caller and keep nothing of content.
func Read(content []byte, format string) iter.Seq2[Record, error] {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	return func(yield func(Record, error) bool) {
		var err error
		switch format {
		case FormatProtobuf:
			err = eachMessage(content, yield)
		case FormatJSON:
			err = eachElement(content, yield)
		case FormatNDJSON:
			err = eachLine(content, yield)
		default:
			err = fmt.Errorf("unknown format %q", format)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Record{}, err)
		}
	}
}

// yieldFunc receives records; false means that the caller wants no more.
type yieldFunc = func(Record, error) bool

var errStopped = errors.New("stopped")

type parser = func([]byte) (*pb.StreetForecast, Remarks, error)

func give(yield yieldFunc, position string, parse parser, text []byte) error {
	f, remarks, err := parse(text)
	if err != nil {
		f = nil
	}
	if !yield(Record{Position: position, Forecast: f, Remarks: remarks, Err: err}, nil) {
		return errStopped
	}
	return nil
}

// eachMessage walks along the fields of a StreetForecastResponse, so that one
// bad message does not spoil the others.
func eachMessage(content []byte, yield yieldFunc) error {
	size := len(content)
	for n := 0; len(content) > 0; {
		at := size - len(content)
		field, kind, tag := protowire.ConsumeTag(content)
		if tag < 0 {
			return fmt.Errorf("no StreetForecastResponse, or cut off, at byte %d: %w", at, protowire.ParseError(tag))
		}
		length := protowire.ConsumeFieldValue(field, kind, content[tag:])
		if length < 0 {
			return fmt.Errorf("no StreetForecastResponse, or cut off, at byte %d: %w", at, protowire.ParseError(length))
		}
		if field == 1 {
			if kind != protowire.BytesType {
				return fmt.Errorf("no StreetForecastResponse: field 1 at byte %d is no message", at)
			}
			message, _ := protowire.ConsumeBytes(content[tag:])
			if err := give(yield, fmt.Sprintf("streetForecast[%d]", n), parseProtobuf, message); err != nil {
				return err
			}
			n++
		}
		content = content[tag+length:]
	}
	return nil
}

// eachElement takes a StreetForecastResponse, or its array alone. It reads one
// element after the other: all at once would take many times the content's memory.
func eachElement(content []byte, yield yieldFunc) error {
	d := json.NewDecoder(bytes.NewReader(content))
	opening, err := d.Token()
	switch {
	case err != nil:
	case opening == json.Delim('['):
		err = eachOf(d, yield)
	case opening == json.Delim('{'):
		err = eachOfMember(d, yield)
	default:
		return fmt.Errorf("no StreetForecastResponse: it is %.64q, neither object nor array", fmt.Sprint(opening))
	}
	if err == nil {
		err = nothingFollows(d)
	}
	return jsonError(err, d, len(content))
}

// eachOfMember reads the object's streetForecast.
func eachOfMember(d *json.Decoder, yield yieldFunc) error {
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
			return errors.New("no StreetForecastResponse: streetForecast stands more than once")
		}
		found = true
		if opening, err := d.Token(); err != nil || opening != json.Delim('[') {
			return cmp.Or(err, errors.New("no StreetForecastResponse: streetForecast is no array"))
		}
		if err := eachOf(d, yield); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if !found {
		return errors.New("the object has no array streetForecast")
	}
	return nil
}

// eachOf reads an array whose opening has been read.
func eachOf(d *json.Decoder, yield yieldFunc) error {
	var text json.RawMessage
	for i := 0; d.More(); i++ {
		if err := d.Decode(&text); err != nil {
			return err
		}
		if err := give(yield, fmt.Sprintf("streetForecast[%d]", i), parseJSON, text); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func nothingFollows(d *json.Decoder) error {
	switch _, err := d.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("no StreetForecastResponse: something follows behind it")
}

// jsonError says where the content is broken: that it is cut off, at its end.
func jsonError(err error, d *json.Decoder, size int) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("no JSON, or cut off, at byte %d: %w", size, io.ErrUnexpectedEOF)
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON, or cut off, behind byte %d: %w", d.InputOffset(), err)
	}
	return err
}

// eachLine passes over empty lines. A last line that has no end and is no JSON
// shows that the content was cut off in it.
func eachLine(content []byte, yield yieldFunc) error {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if line[len(line)-1] != '\n' && !json.Valid(text) {
			return fmt.Errorf("line %d, the last one, has no end and is no JSON: the file is cut off there, or is no NDJSON", n)
		}
		if err := give(yield, fmt.Sprintf("line %d", n), parseJSON, text); err != nil {
			return err
		}
	}
	return nil
}
