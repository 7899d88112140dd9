package ingest

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
	"trafficd/sources/internal/admission"
)

// answer writes the 207 (contract 5.2, contract 1.3). It takes the rejections out of r.
func answer(ctx *fasthttp.RequestCtx, r *batch.Result, memory *admission.Quotas, client string) {
	h := &ctx.Response.Header
	ctx.SetStatusCode(fasthttp.StatusMultiStatus)
	h.SetContentType("application/json")
	h.Set(fasthttp.HeaderVary, "Accept, Accept-Encoding")
	h.Set("Batch-Id", r.ID.String())
	if r.Replay {
		h.Set("Idempotent-Replay", "true")
	}
	if r.Duplicates > 0 {
		h.Set("Duplicate-Items", strconv.Itoa(r.Duplicates))
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
	_, _ = text.WriteTo(w) // out never fails
	_ = w.Close()
	gzipWriters.Put(w)
	_ = text.Close()
	ctx.Response.SetBodyStream(out, out.written)
}

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// wantsGzip reports whether the answer is to be compressed: Accept-Encoding allows it, or Accept
// names gzip as a word, as in application/gzip, application/json+gzip or
// application/json;encoding=gzip (contract 1.3).
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

func appendRejection(b []byte, x batch.Rejection, echo []byte) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendUint(b, uint64(x.Index), 10)
	b = append(b, `,"error":{"description":"`...)
	b = contract.AppendItemDescription(b, x.Code, x.Field, echo)
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
