// Package span passes the span of a request from the HTTP server to an endpoint.
package span

import (
	"context"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace"
)

type key struct{}

// Attach makes s the span of a request.
func Attach(ctx *fasthttp.RequestCtx, s trace.Span) { ctx.SetUserValue(key{}, s) }

// Of returns the span of a request, or one that records nothing. It does not allocate.
func Of(ctx *fasthttp.RequestCtx) trace.Span {
	if s, ok := ctx.UserValue(key{}).(trace.Span); ok {
		return s
	}
	return trace.SpanFromContext(context.Background())
}
