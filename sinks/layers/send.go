package layers

import (
	"io"
	"sync"

	"github.com/valyala/fasthttp"
)

// send makes bytes from…to of the body that of the answer, without copying them.
func (b *body) send(resp *fasthttp.Response, from, to int) {
	for i, stretch := range b.stretches {
		if from < len(stretch) {
			b.sendFrom(resp, b.stretches[i:], from, to)
			return
		}
		from, to = from-len(stretch), to-len(stretch)
	}
}

func (b *body) sendFrom(resp *fasthttp.Response, list [][]byte, from, to int) {
	if to <= len(list[0]) {
		resp.SetBodyRaw(list[0][from:to])
		return
	}
	s := streams.Get().(*stream)
	s.rest, s.skip, s.left = list, from, to-from
	resp.SetBodyStream(s, s.left)
}

// stream writes stretches of memory one after the other. fasthttp closes it when the
// answer is written, or when it cannot be.
type stream struct {
	rest [][]byte
	skip int // bytes of the first stretch
	left int // bytes to write
}

var streams = sync.Pool{New: func() any { return new(stream) }}

// next gives the bytes that come next, at most limit of them, and none at the end.
func (s *stream) next(limit int) []byte {
	if s.left == 0 {
		return nil
	}
	chunk := s.rest[0][s.skip:]
	chunk = chunk[:min(len(chunk), s.left, limit)]
	s.left -= len(chunk)
	if s.skip += len(chunk); s.skip == len(s.rest[0]) {
		s.rest, s.skip = s.rest[1:], 0
	}
	return chunk
}

// Read is what fasthttp does not need: it uses WriteTo.
func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	return copy(p, s.next(len(p))), nil
}

func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	for s.left > 0 && err == nil {
		var n int
		n, err = w.Write(s.next(s.left))
		written += int64(n)
	}
	return written, err
}

func (s *stream) Close() error {
	*s = stream{}
	streams.Put(s)
	return nil
}
