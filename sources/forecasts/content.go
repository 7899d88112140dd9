package forecasts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// eachElement takes a StreetForecastResponse, or its array alone.
func eachElement(content []byte, yield yieldFunc) error {
	list, err := elements(content)
	if err != nil {
		return err
	}
	for i, text := range list {
		if err := give(yield, fmt.Sprintf("streetForecast[%d]", i), parseJSON, text); err != nil {
			return err
		}
	}
	return nil
}

func elements(content []byte) (list []json.RawMessage, err error) {
	if bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("[")) {
		return list, jsonError(json.Unmarshal(content, &list))
	}
	var response struct {
		StreetForecast *[]json.RawMessage `json:"streetForecast"`
	}
	if err := json.Unmarshal(content, &response); err != nil {
		return nil, jsonError(err)
	}
	if response.StreetForecast == nil {
		return nil, errors.New("the object has no array streetForecast")
	}
	return *response.StreetForecast, nil
}

func jsonError(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON, or cut off, at byte %d: %w", syntax.Offset, err)
	}
	return fmt.Errorf("no StreetForecastResponse: %w", err)
}

// eachLine passes over empty lines.
func eachLine(content []byte, yield yieldFunc) error {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if err := give(yield, fmt.Sprintf("line %d", n), parseJSON, line); err != nil {
			return err
		}
	}
	return nil
}
