package feeds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxElement is the maximum size of a JSON value that is read as a whole, such as one sensor.
const maxElement = 1 << 20

// eachElement reads a JSON object and calls f for each of its members, one after another, and for
// each element of the array called list, which must exist. Without a name, the document itself must
// be the array.
func eachElement(in io.Reader, list string, f func(name string, raw json.RawMessage) error) error {
	bounded := &bounded{in: in}
	d := json.NewDecoder(bounded)
	next := func() (json.Token, error) {
		bounded.left = maxElement
		t, err := d.Token()
		return t, jsonError(err)
	}
	value := func(name string) error {
		bounded.left = maxElement
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return jsonError(err)
		}
		return f(name, raw)
	}
	array := func(name string) error {
		t, err := next()
		if err != nil {
			return err
		}
		if t != json.Delim('[') {
			return fmt.Errorf("%q is not an array", list)
		}
		for d.More() {
			if err := value(name); err != nil {
				return err
			}
		}
		_, err = next()
		return err
	}
	if list == "" {
		if err := array(""); err != nil {
			return err
		}
		return atEnd(d)
	}
	t, err := next()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("it is not a JSON object with %q", list)
	}
	found := false
	for d.More() {
		t, err := next()
		if err != nil {
			return err
		}
		read := value
		if t == list {
			found, read = true, array
		}
		if err := read(t.(string)); err != nil {
			return err
		}
	}
	if _, err := next(); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("it is a JSON object without %q", list)
	}
	return atEnd(d)
}

func atEnd(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("invalid JSON: data follows the value")
	}
	return nil
}

func jsonError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("invalid JSON: unexpected end of the document")
	case errors.As(err, new(*json.SyntaxError)):
		return fmt.Errorf("invalid JSON: %w", err)
	}
	return err
}

// bounded fails if more is read than was left for the next value.
type bounded struct {
	in   io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a JSON value is longer than %d bytes", maxElement)
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
