package layers

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

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
	opening   = [numFormats][numEncodings]form{jsonText: stored(jsonOpen)}
	separator = [numFormats][numEncodings]form{jsonText: stored(",")}
	closing   = [numFormats][numEncodings]form{jsonText: stored(jsonClose)}
)

// join returns the body of a document made up of pieces. It skips empty ones.
func join(pieces []*piece, f format, e encoding) *body {
	b := &body{segments: make([][]byte, 0, 2*len(pieces)+3)}
	crc, size := uint32(0), 0
	add := func(f *form) {
		crc, size = joinCRC(crc, f.crc, f.size), size+f.size
		if len(f.bytes) > 0 {
			b.segments, b.size = append(b.segments, f.bytes), b.size+len(f.bytes)
		}
	}
	if e == gzipped {
		add(&form{bytes: gzipHeader})
	}
	add(&opening[f][e])
	first := true
	for _, p := range pieces {
		if p.empty {
			continue
		}
		if !first {
			add(&separator[f][e])
		}
		first = false
		add(p.form(f, e))
	}
	if add(&closing[f][e]); e == gzipped {
		add(&form{bytes: gzipTrailer(crc, size)})
	}
	return b
}

// sumOf returns the hash of a document's content, computed from the hashes of its pieces.
func sumOf(pieces []*piece, z *zone, v view) uint64 {
	sums := make([]byte, 0, 8*len(pieces)+64)
	sums = fmt.Appendf(sums, "%s %t %d ", z.name, v.whole, v.at)
	if v.all {
		sums = append(sums, "all"...)
	}
	for _, p := range pieces {
		if !p.empty {
			sums = binary.LittleEndian.AppendUint64(sums, p.sum)
		}
	}
	return xxhash.Sum64(sums)
}

// formsVersion must be increased when the encoders change, so that replicas that run different
// versions do not send different bytes with the same ETag.
const formsVersion = 6

// etagOf returns the ETag of content with the hash sum, in format f and encoding e.
func etagOf(sum uint64, f format, e encoding) []byte {
	return fmt.Appendf(nil, `"%016x%s"`, sum+formsVersion, etagSuffix[f][e])
}

var etagSuffix = [numFormats][numEncodings]string{{"", "-g"}, {"-j", "-jg"}}

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
	if b.size == 0 {
		return nil
	}
	own, segments := 0, b.segments
	for _, p := range r.pieces {
		if p.own && !p.empty {
			own += len(p.form(r.format, r.encoding).bytes)
		}
	}
	for ; from >= len(segments[0]); segments = segments[1:] {
		from, to = from-len(segments[0]), to-len(segments[0])
	}
	if to <= len(segments[0]) && own == 0 {
		ctx.Response.SetBodyRaw(segments[0][from:to])
		return nil
	}
	s := streams.Get().(*stream)
	*s = stream{
		rest: segments, skip: from, left: to - from,
		layer: r.layer, client: r.client, representation: representation{r.document, r.format, r.encoding}, shared: b.size - own, own: own,
	}
	if apiErr := r.layer.addUnread(s); apiErr != nil {
		return apiErr
	}
	ctx.Response.SetBodyStream(s, s.left)
	return nil
}

// stream writes segments one after the other. fasthttp closes it after the response.
type stream struct {
	rest           [][]byte // segments to write
	skip           int      // bytes to skip in the first segment
	left           int      // number of bytes to write
	layer          *Layer   // counts the response as unread
	client         string
	representation representation
	shared         int // size of what it shares with other responses from the representation
	own            int // size of what was made for it
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
	buffer := buffers.Get().(*bufio.Writer)
	defer buffers.Put(buffer)
	defer buffer.Reset(nil)
	buffer.Reset(w)
	for s.left > 0 && err == nil {
		var n int
		n, err = buffer.Write(s.next(s.left))
		written += int64(n)
	}
	return written, cmp.Or(err, buffer.Flush())
}

var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 128<<10) }}

func (s *stream) Close() error {
	s.layer.removeUnread(s)
	*s = stream{}
	streams.Put(s)
	return nil
}

// Limits on what slow clients keep in memory. A layer of 100,000 streets as JSON without
// compression takes about 200 MB, and a client may take an hour to read it.
const (
	madeLimit    = 256 << 20 // responses made for single requests, of all clients
	earlierLimit = 128 << 20 // what a client is reading of earlier layers when it requests another body
)

// representation is a document in a format and encoding: what responses share with each other.
type representation struct {
	document *document
	format   format
	encoding encoding
}

// addUnread counts a response until its stream is closed. It returns a 503 if the client is reading
// more than the limit of earlier layers. Responses from one representation count at most as much as
// it does.
func (l *Layer) addUnread(s *stream) *contract.APIError {
	l.clients.Lock()
	defer l.clients.Unlock()
	unread, earlier := l.unread[s.client], 0
	for from, size := range unread {
		if d := from.document; d != l.current.Load().document(d.zone.name, d.index) {
			earlier += min(size, d.size(from.format, from.encoding))
		}
	}
	if earlier > l.earlierLimit {
		return contract.Unavailable(fmt.Sprintf("this client is still reading %d bytes of earlier layers, more than %d: read them or close "+
			"their connections, then try again", earlier, l.earlierLimit), time.Second)
	}
	if unread == nil {
		unread = map[representation]int{}
		l.unread[s.client] = unread
	}
	unread[s.representation] += s.shared
	l.made.Charge(s.client, int64(s.own))
	return nil
}

func (l *Layer) removeUnread(s *stream) {
	l.clients.Lock()
	defer l.clients.Unlock()
	unread := l.unread[s.client]
	if unread[s.representation] -= s.shared; unread[s.representation] <= 0 {
		delete(unread, s.representation)
	}
	l.made.Discharge(s.client, int64(s.own))
}
