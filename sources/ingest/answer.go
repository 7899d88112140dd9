package ingest

import (
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// answer writes the 207 (contract 5.2, contract 1.3). r is spent
// afterwards.
func answer(ctx *fasthttp.RequestCtx, r *batch.Result, a *admission) {
	h := &ctx.Response.Header
	ctx.SetStatusCode(fasthttp.StatusMultiStatus)
	h.SetContentType("application/json")
	h.Set(fasthttp.HeaderVary, "Accept, Accept-Encoding")
	h.Set("Batch-Id", r.ID.String())
	if r.Replay {
		h.Set("Idempotent-Replay", "true")
	}
	text := newRendering(r, a)
	if !wantsGzip(&ctx.Request.Header) {
		ctx.Response.SetBodyStream(text, text.size())
		return
	}
	h.SetContentEncoding("gzip")
	out := compress(text, a)
	ctx.Response.SetBodyStream(out, out.written)
}

// compress gives a rendering as gzip, and closes it.
func compress(text *rendering, a *admission) *blocks {
	out := newBlocks(a)
	w := gzipWriters.Get().(*gzip.Writer)
	w.Reset(out)
	_, _ = text.WriteTo(w) // out never fails
	_ = w.Close()
	gzipWriters.Put(w)
	_ = text.Close()
	return out
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

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
	return w
}}
