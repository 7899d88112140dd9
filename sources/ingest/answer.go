package ingest

import (
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
)

// answer writes the 207 (interface specification 2.3, decisions.md 1.3). It renders
// into out, which the response closes when it is written.
func answer(ctx *fasthttp.RequestCtx, r *batch.Result, out *blocks) {
	h := &ctx.Response.Header
	if wantsGzip(&ctx.Request.Header) {
		w := gzipWriters.Get().(*gzip.Writer)
		w.Reset(out)
		render(w, r)
		_ = w.Close() // out never fails
		gzipWriters.Put(w)
		h.SetContentEncoding("gzip")
	} else {
		render(out, r)
	}
	ctx.SetStatusCode(fasthttp.StatusMultiStatus)
	h.SetContentType("application/json")
	h.Set(fasthttp.HeaderVary, "Accept, Accept-Encoding")
	h.Set("Batch-Id", r.ID.String())
	if r.Replay {
		h.Set("Idempotent-Replay", "true")
	}
	ctx.Response.SetBodyStream(out, out.written)
}

// writer is what an answer is rendered into; it never fails.
type writer interface {
	Write(p []byte) (int, error)
}

// render writes the IngestResult. Rejections come in ascending order already.
func render(w writer, r *batch.Result) {
	scratch := scratches.Get().(*[]byte)
	b := (*scratch)[:0]
	b = append(b, `{"accepted":`...)
	b = strconv.AppendInt(b, int64(r.Accepted), 10)
	b = append(b, `,"rejected":`...)
	b = strconv.AppendInt(b, int64(r.Rejected()), 10)
	b = append(b, `,"rejections":[`...)
	for i, x := range r.List {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRejection(b, x, r.Echo(x))
		if len(b) >= flushAt {
			_, _ = w.Write(b)
			b = b[:0]
		}
	}
	b = append(b, "]}"...)
	_, _ = w.Write(b)
	*scratch = b
	scratches.Put(scratch)
}

func appendRejection(b []byte, x batch.Rejection, echo []byte) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(x.Index), 10)
	b = append(b, `,"error":{"description":"`...)
	b = appendDescription(b, x.Code, x.Field, echo)
	b = append(b, `","errorCode":"`...)
	b = append(b, x.Code.String()...)
	b = append(b, `","parameter":"measurements[`...)
	b = strconv.AppendUint(b, uint64(x.Index), 10)
	b = append(b, ']')
	if x.Field != batch.FieldItem {
		b = append(b, '.')
		b = append(b, x.Field.String()...)
	}
	return append(b, `"}}`...)
}

// appendEscaped appends echoed input as the inside of a JSON string. It may hold any
// bytes: what is no UTF-8 becomes U+FFFD, and a character that was cut off at
// batch.EchoLimit is left out.
func appendEscaped(b, echo []byte) []byte {
	if len(echo) == batch.EchoLimit {
		echo = wholeRunes(echo)
	}
	for len(echo) > 0 {
		r, size := utf8.DecodeRune(echo)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r) // U+FFFD for a byte that is no UTF-8
		}
		echo = echo[size:]
	}
	return b
}

const (
	hexDigits = "0123456789abcdef"
	flushAt   = 8 << 10 // what the scratch memory of an answer may grow to, and one rejection more
)

var (
	scratches   = sync.Pool{New: func() any { b := make([]byte, 0, flushAt+1<<10); return &b }}
	gzipWriters = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
		return w
	}}
)
