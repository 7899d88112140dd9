package api

import (
	"encoding/hex"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"trafficd/schemas/contract"
)

// startSpan starts the span of a request, as a child of the client's span if there is a valid
// traceparent header. The span's trace id becomes that of the request.
func (x *exchange) startSpan(tracer oteltrace.Tracer, r *requestHeaders) {
	_, x.span = tracer.Start(parentOf(r.traceparent), "HTTP",
		oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithTimestamp(x.start))
	id := x.span.SpanContext().TraceID()
	hex.Encode(x.trace[:], id[:])
}

// endSpan ends the span of a request. The span does not contain unknown paths and methods, which
// are arbitrary data of the client.
func (x *exchange) endSpan(ctx *fasthttp.RequestCtx, code contract.Code) {
	defer x.span.End()
	if !x.span.IsRecording() {
		return
	}
	if x.route != nil && (x.preflight || x.route.takes(ctx.Method())) {
		method, path := string(ctx.Method()), string(pathOf(ctx.RequestURI()))
		x.span.SetName(method + " " + path)
		x.span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", path))
	}
	if client := x.client(); client != nil {
		x.span.SetAttributes(attribute.String("trafficd.client", client.Name))
	}
	status := ctx.Response.StatusCode()
	switch {
	case x.silent:
		x.span.SetStatus(codes.Error, "closed without an answer")
		return
	case code != contract.OK:
		x.span.SetAttributes(attribute.String("error.type", code.String()))
	}
	x.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= fasthttp.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
}
