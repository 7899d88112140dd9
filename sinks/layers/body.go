package layers

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fasthttp"
)

// body is a finished response body: segments of memory that are sent one after the other.
type body struct {
	segments [][]byte
	size     int
	etag     []byte
}

// bodies returns the bodies of the document that consists of these pages. An ETag hashes the hashes
// of the pieces, so that a small change does not reread all bytes; what is not in a piece depends
// on the format only.
func (r *renderer) bodies(pages []*page) (all [encodings]body) {
	opening, closing := openings[r.format], closings[r.format]
	content := checksum{}.add(opening.forms[identity])
	for _, page := range pages {
		content = content.then(page.content)
	}
	trailers := trailersOf(content.add(closing.forms[identity]))
	for e := range encodings {
		head := slices.Concat(headers[e], opening.forms[e])
		tail := slices.Concat(closing.forms[e], trailers[e])
		segments := [][]byte{head}
		if len(pages) == 1 { // a small layer is sent in one write
			segments = [][]byte{pages[0].join(e, head, tail)}
		} else {
			for _, page := range pages {
				segments = append(segments, page.forms[e])
			}
			segments = append(segments, tail)
		}
		sums := slices.Clone(mediaTypes[r.format])
		for _, page := range pages {
			for _, piece := range page.pieces {
				sums = binary.LittleEndian.AppendUint64(sums, piece.sums[e])
			}
		}
		b := body{etag: fmt.Appendf(nil, `"%016x%s"`, xxhash.Sum64(sums), etagSuffix[e])}
		for _, segment := range segments {
			if len(segment) > 0 {
				b.segments, b.size = append(b.segments, segment), b.size+len(segment)
			}
		}
		all[e] = b
	}
	return all
}

// send makes bytes [from, to) of the body the response's body, without copying them.
func (b *body) send(resp *fasthttp.Response, from, to int) {
	for i, segment := range b.segments {
		switch {
		case from >= len(segment):
			from, to = from-len(segment), to-len(segment)
			continue
		case to <= len(segment):
			resp.SetBodyRaw(segment[from:to])
		default:
			s := streams.Get().(*stream)
			s.rest, s.skip, s.left = b.segments[i:], from, to-from
			resp.SetBodyStream(s, s.left)
		}
		return
	}
}

// stream writes segments one after the other. fasthttp closes it after the response.
type stream struct {
	rest [][]byte
	skip int // bytes of the first segment
	left int // bytes to write
}

var streams = sync.Pool{New: func() any { return new(stream) }}

// next returns the next bytes, at most limit of them.
func (s *stream) next(limit int) []byte {
	chunk := s.rest[0][s.skip:]
	chunk = chunk[:min(len(chunk), s.left, limit)]
	s.left -= len(chunk)
	if s.skip += len(chunk); s.skip == len(s.rest[0]) {
		s.rest, s.skip = s.rest[1:], 0
	}
	return chunk
}

// Read implements io.Reader, which fasthttp requires although it calls WriteTo.
func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	return copy(p, s.next(len(p))), nil
}

// WriteTo implements io.WriterTo.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	for s.left > 0 && err == nil {
		var n int
		n, err = w.Write(s.next(s.left))
		written += int64(n)
	}
	return written, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	*s = stream{}
	streams.Put(s)
	return nil
}
