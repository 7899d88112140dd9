package layers

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// body is a finished response body: segments of memory that are sent one after the other.
type body struct {
	segments [][]byte
	size     int
}

// The text before, between and after the pieces of a document. Protobuf needs none.
var (
	openings   = [numFormats][numEncodings]form{jsonText: stored(jsonOpen)}
	separators = [numFormats][numEncodings]form{jsonText: stored(",")}
	closings   = [numFormats][numEncodings]form{jsonText: stored(jsonClose)}
)

// join returns the body of a document made up of pieces. It skips nil pieces.
func join(pieces []*piece, f format, e encoding) *body {
	content, separator := openings[f][e].plain, separators[f][e]
	b := &body{segments: make([][]byte, 0, 2*len(pieces)+2)}
	add := func(segment []byte) {
		if len(segment) > 0 {
			b.segments, b.size = append(b.segments, segment), b.size+len(segment)
		}
	}
	add(slices.Concat(headers[e], openings[f][e].bytes))
	first := true
	for _, p := range pieces {
		if p == nil {
			continue
		}
		if !first && separator.bytes != nil {
			add(separator.bytes)
			content = content.then(separator.plain)
		}
		first = false
		encoded := p.form(f, e)
		add(encoded.bytes)
		content = content.then(encoded.plain)
	}
	add(slices.Concat(closings[f][e].bytes, trailersOf(content.then(closings[f][e].plain))[e]))
	return b
}

// sumOf returns the hash of a document's content, computed from the hashes of its pieces.
func sumOf(pieces []*piece, z *zone, c scope) uint64 {
	sums := make([]byte, 0, 8*len(pieces)+64)
	sums = fmt.Appendf(sums, "%s %t %d ", z.name, c.whole, c.horizon)
	for _, p := range pieces {
		if p != nil {
			sums = binary.LittleEndian.AppendUint64(sums, p.sum)
		}
	}
	return xxhash.Sum64(sums)
}

// formsVersion must be increased when the encoders change, so that replicas that run different
// versions do not send different bytes with the same ETag.
const formsVersion = 5

// etagOf returns the ETag of content with the hash sum, in format f and encoding e.
func etagOf(sum uint64, f format, e encoding) []byte {
	return fmt.Appendf(nil, `"%016x%s"`, sum+formsVersion, etagSuffix[f][e])
}

var etagSuffix = [numFormats][numEncodings]string{{"", "-g", "-z"}, {"-j", "-jg", "-jz"}}

// sumFromETag returns the hash of the content that an ETag identifies, whatever its format and
// encoding. ok is false if the ETag is malformed. The quotes may be missing, because HTTP client
// libraries remove them.
func sumFromETag(etag string) (sum uint64, ok bool) {
	text := strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if len(text) < 16 || len(text) > 16 && text[16] != '-' {
		return 0, false
	}
	sum, err := strconv.ParseUint(text[:16], 16, 64)
	return sum - formsVersion, err == nil
}

// setBody sets the body to bytes [from, to) of b, without copying them. It returns a 503 if the
// client is still reading too much of earlier layers.
func (r *response) setBody(ctx *fasthttp.RequestCtx, b *body, from, to int) *contract.APIError {
	k := r.kept(b)
	for i, segment := range b.segments {
		switch {
		case from >= len(segment):
			from, to = from-len(segment), to-len(segment)
			continue
		case to <= len(segment) && k.own == 0:
			ctx.Response.SetBodyRaw(segment[from:to])
		default:
			if apiErr := r.layer.unread.add(r.client, k); apiErr != nil {
				return apiErr
			}
			s := streams.Get().(*stream)
			s.rest, s.skip, s.left = b.segments[i:], from, to-from
			s.unread, s.client, s.kept = r.layer.unread, r.client, k
			ctx.Response.SetBodyStream(s, s.left)
		}
		return nil
	}
	return nil
}

// kept returns what the response keeps in memory if its body is b.
func (r *response) kept(b *body) kept {
	k := kept{source: source{replaced: r.replaced, format: r.format, encoding: r.encoding}, sizes: sizes{b.size, b.size}}
	if !r.part {
		return k
	}
	for _, p := range r.pieces {
		switch {
		case p == nil:
		case p.own:
			k.own += int64(len(p.form(r.format, r.encoding).bytes))
		case p.every:
			k.changes = p.form(r.format, r.encoding)
			return k
		}
	}
	k.sizes = sizes{b.size - int(k.own), r.document.size(r.format, r.encoding)}
	return k
}

// stream writes segments one after the other. fasthttp closes it after the response.
type stream struct {
	rest [][]byte // segments to write
	skip int      // bytes to skip in the first segment
	left int      // number of bytes to write

	unread *unread // contains the response
	client string
	kept   kept
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

// WriteTo implements io.WriterTo. It combines small segments into large writes.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	buffer := gatherBuffers.Get().(*[gatherSize]byte)
	defer gatherBuffers.Put(buffer)
	for s.left > 0 && err == nil {
		chunk := s.next(s.left)
		if len(chunk) < gatherSize/4 && s.left > 0 {
			n := copy(buffer[:], chunk)
			for s.left > 0 && n < gatherSize {
				n += copy(buffer[n:], s.next(min(s.left, gatherSize-n)))
			}
			chunk = buffer[:n]
		}
		var n int
		n, err = w.Write(chunk)
		written += int64(n)
	}
	return written, err
}

const gatherSize = 128 << 10

var gatherBuffers = sync.Pool{New: func() any { return new([gatherSize]byte) }}

func (s *stream) Close() error {
	s.unread.remove(s.client, s.kept)
	*s = stream{}
	streams.Put(s)
	return nil
}
