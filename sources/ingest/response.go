package ingest

import (
	"bytes"
	"io"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// respond writes the response to a batch or a dry run (contract 5.2 and 1.3), except its status and
// the headers in which they differ. It leaves r empty.
func respond(ctx *fasthttp.RequestCtx, r *batch.Result, memory *admission.Quotas, client string) {
	h := &ctx.Response.Header
	h.SetContentType("application/json")
	h.Set(fasthttp.HeaderVary, "Accept, Accept-Encoding")
	if r.Replay {
		h.Set("Idempotent-Replay", "true")
	}
	if r.Duplicates > 0 {
		h.Set("Duplicate-Items", strconv.Itoa(r.Duplicates))
	}
	if r.Detectors != nil {
		h.Set("Registry-Version", r.Detectors.Version())
	}
	text := newRendering(r, memory, client)
	if !wantsGzip(&ctx.Request.Header) {
		ctx.Response.SetBodyStream(text, text.size())
		return
	}
	h.SetContentEncoding("gzip")
	out := newBlocks(memory, client)
	w := gzipWriters.Get().(*gzip.Writer)
	w.Reset(out)
	_, _ = text.WriteTo(w) // writing to out cannot fail
	_ = w.Close()
	gzipWriters.Put(w)
	_ = text.Close()
	ctx.Response.SetBodyStream(out, out.written)
}

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// wantsGzip reports whether Accept-Encoding allows a compressed response, or Accept contains the
// word gzip, as in application/gzip, application/json+gzip or application/json;encoding=gzip
// (contract 1.3).
func wantsGzip(h *fasthttp.RequestHeader) bool {
	if negotiate.AcceptsGzip(h.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		return true
	}
	for _, rest := range h.PeekAll(fasthttp.HeaderAccept) {
		for len(rest) > 0 {
			var e negotiate.Element
			e, rest = negotiate.Next(rest)
			for _, part := range [...][]byte{e.Value, e.Parameters} {
				for word := range bytes.FieldsFuncSeq(part, func(r rune) bool { return r|0x20 < 'a' || r|0x20 > 'z' }) {
					if bytes.EqualFold(word, []byte("gzip")) && e.Quality() > 0 {
						return true
					}
				}
			}
		}
	}
	return false
}

// appendRejection appends a rejection of r as JSON.
func appendRejection(b []byte, r *batch.Result, x batch.Rejection) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(x.Index), 10)
	b = append(b, `,"error":{"description":"`...)
	b = contract.AppendItemDescription(b, x.Code, x.Field, r.Detail(x), &r.Allowed)
	b = append(b, `","errorCode":"`...)
	b = append(b, x.Code.String()...)
	b = append(b, `","parameter":"measurements[`...)
	b = strconv.AppendUint(b, uint64(x.Index), 10)
	b = append(b, ']')
	if x.Field != contract.FieldItem {
		b = append(b, '.')
		b = append(b, x.Field.String()...)
	}
	return append(b, `"}}`...)
}

// pieceSize is the minimum size of every piece except the last.
const pieceSize = 8 << 10

// rendering is an IngestResult that is rendered while it is written. A small body can cause a
// response of many megabytes that the client might never read, so only the list of rejections is
// kept in memory and charged to the client's quota.
type rendering struct {
	memory  *admission.Quotas
	client  string
	charged int64 // bytes charged to the client's quota
	result  batch.Result

	begun, ended bool
	next         int    // index of the next rejection to render
	piece, left  []byte // the last piece; the part of it that Read has not returned yet
}

// newRendering returns a rendering of r. It swaps the contents of r and an empty recycled result,
// so that the buffers of both are reused.
func newRendering(r *batch.Result, memory *admission.Quotas, client string) *rendering {
	x := renderings.Get().(*rendering)
	x.result, *r = *r, x.result
	x.memory, x.client, x.charged = memory, client, int64(x.result.Size())
	memory.Charge(client, x.charged)
	return x
}

// size returns the length of the JSON, which it renders once to measure it. It must be called
// before Read and WriteTo.
func (x *rendering) size() (n int) {
	for p := x.nextPiece(); len(p) > 0; p = x.nextPiece() {
		n += len(p)
	}
	x.begun, x.ended, x.next = false, false, 0
	return n
}

// nextPiece returns the next piece, valid until the next call, or an empty piece at the end.
func (x *rendering) nextPiece() []byte {
	b, r := x.piece[:0], &x.result
	if !x.begun {
		x.begun = true
		b = append(b, `{"accepted":`...)
		b = strconv.AppendInt(b, int64(r.Accepted), 10)
		b = append(b, `,"rejected":`...)
		b = strconv.AppendInt(b, int64(r.Rejected()), 10)
		b = append(b, `,"rejections":[`...)
	}
	for ; x.next < len(r.List) && len(b) < pieceSize; x.next++ {
		if x.next > 0 {
			b = append(b, ',')
		}
		b = appendRejection(b, r, r.List[x.next])
	}
	if x.next == len(r.List) && !x.ended {
		x.ended = true
		b = append(b, "]}"...)
	}
	x.piece = b
	return b
}

// Read implements io.Reader. The server uses WriteTo instead.
func (x *rendering) Read(p []byte) (int, error) {
	if len(x.left) == 0 {
		x.left = x.nextPiece()
	}
	if len(x.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, x.left)
	x.left = x.left[n:]
	return n, nil
}

func (x *rendering) WriteTo(w io.Writer) (total int64, err error) {
	for p := x.nextPiece(); len(p) > 0 && err == nil; p = x.nextPiece() {
		var n int
		n, err = w.Write(p)
		total += int64(n)
	}
	return total, err
}

// Close implements io.Closer. The server calls it after WriteTo, even if that failed.
func (x *rendering) Close() error {
	x.memory.Discharge(x.client, x.charged)
	rejections := x.result.Rejections
	rejections.Reset()
	*x = rendering{result: batch.Result{Rejections: rejections}, piece: x.piece}
	renderings.Put(x)
	return nil
}

var renderings = sync.Pool{New: func() any { return &rendering{piece: make([]byte, 0, pieceSize+1<<10)} }}
