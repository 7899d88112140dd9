package span_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"trafficd/sources/internal/span"
)

func TestSpan(t *testing.T) {
	ctx := new(fasthttp.RequestCtx)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if s := span.Of(ctx); s.IsRecording() || s.SpanContext().IsValid() {
			t.Fatal("got a span, want none")
		}
	}), "disabled tracing must not allocate")

	recorder := tracetest.NewSpanRecorder()
	_, s := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("").Start(t.Context(), "request")
	span.Attach(ctx, s)
	span.Of(ctx).SetAttributes(attribute.Int("n", 1))
	s.End()
	require.Equal(t, []attribute.KeyValue{attribute.Int("n", 1)}, recorder.Ended()[0].Attributes())
}
