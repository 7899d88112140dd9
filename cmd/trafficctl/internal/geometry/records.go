package geometry

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// record is one geometry as it stands in the input.
type record struct {
	place string // "line 7"
	data  []byte // until the next one is read
}

// records cuts the input into records of at most so many bytes. The second value
// is an error that ends the input.
func records(in io.Reader, e Encoding, most int) iter.Seq2[record, error] {
	b := bufio.NewReader(in)
	if magic, _ := b.Peek(2); string(magic) == "\x1f\x8b" {
		return func(yield func(record, error) bool) {
			yield(record{}, errors.New("the input is compressed with gzip: unpack it first, as by zcat"))
		}
	}
	in = b
	switch e {
	case WKB:
		return whole(in, most)
	case KML:
		return placemarks(in, most)
	}
	return lines(in, most)
}

func tooLong(place string, most int) error {
	return fmt.Errorf("%s: more than %d bytes in one geometry; --max-bytes allows more", place, most)
}

// lines leaves out those that are blank.
func lines(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		const first = 64 << 10
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, min(first, most)), most)
		n := 0
		for scanner.Scan() {
			n++
			line := bytes.TrimSpace(scanner.Bytes())
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			if len(line) > 0 && !yield(record{fmt.Sprintf("line %d", n), line}, nil) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(record{}, tooLong(fmt.Sprintf("line %d", n+1), most))
		case err != nil:
			yield(record{}, fmt.Errorf("cannot read the input after line %d: %w", n, err))
		}
	}
}

// whole takes the input for one record.
func whole(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		data, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
		switch {
		case err != nil:
			yield(record{}, fmt.Errorf("cannot read the input: %w", err))
		case len(data) > most:
			yield(record{}, tooLong("the input", most))
		default:
			yield(record{"the input", data}, nil)
		}
	}
}
