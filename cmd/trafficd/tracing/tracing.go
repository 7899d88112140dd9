// Package tracing exports spans over OTLP: one for each request, each commit of the journal and
// each block sent to a store. Commits and blocks serve many requests, so their spans link to those
// requests' spans.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/settings"
)

// Config configures tracing.
type Config struct {
	// URL of an OpenTelemetry collector to which spans are sent as OTLP over HTTP, for example
	// http://127.0.0.1:4318; /v1/traces is added to a URL without a path. Empty: no tracing. Headers,
	// a CA and other options are set with OpenTelemetry's environment variables, such as
	// OTEL_EXPORTER_OTLP_HEADERS.
	Endpoint string `setting:"endpoint"`
	// Fraction of requests to trace among those without a traceparent header. For requests with the
	// header, its sampled flag decides. Lower the fraction if map clients send many requests.
	Ratio float64 `setting:"ratio"`
}

// DefaultConfig returns the default settings, without an endpoint.
func DefaultConfig() Config { return Config{Ratio: 1} }

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	return errors.Join(
		settings.Check(c.Endpoint == "" || settings.IsURL(c.Endpoint),
			"endpoint is %q, must be empty or an http or https URL with a host", settings.Redact(c.Endpoint, settings.Mask)),
		settings.Within("ratio", c.Ratio, 0, 1, "it is a fraction"),
	)
}

// Tracing creates spans, and sends them in the background.
type Tracing struct {
	trace.Tracer
	provider *sdk.TracerProvider
	log      zerolog.Logger
}

// Start starts tracing. It returns nil if no endpoint is configured. The collector need not be
// reachable: spans that cannot be sent are dropped, and a warning is logged at most once a minute.
func Start(c Config, version string, log zerolog.Logger) (*Tracing, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	u, _ := url.Parse(c.Endpoint) // Validate has checked it
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("cannot start tracing: %w", err)
	}
	attributes, err := resource.New(context.Background(), resource.WithHost(), resource.WithProcessPID(), resource.WithAttributes(
		attribute.String("service.name", "trafficd"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("cannot start tracing: %w", err)
	}
	sampled := log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sampled.Warn().Str("error", settings.Redact(err.Error(), settings.Mask)).Msg("cannot send spans; they are dropped")
	}))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(attributes),
		sdk.WithSampler(linkSampler{sdk.ParentBased(sdk.TraceIDRatioBased(c.Ratio))}))
	return &Tracing{p.Tracer("trafficd"), p, log}, nil
}

// stopTimeout is long enough for a working collector.
const stopTimeout = 2 * time.Second

// Stop sends the remaining spans, for at most stopTimeout or until ctx is done. An unresponsive
// collector must neither fail nor delay the shutdown.
func (t *Tracing) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn().Str("error", settings.Redact(err.Error(), settings.Mask)).Msg("cannot send the last spans; they are dropped")
	}
}

// linkSampler samples every span that has links, because only sampled requests are linked to.
type linkSampler struct{ sdk.Sampler }

// ShouldSample implements sdk.Sampler.
func (s linkSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if len(p.Links) > 0 {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return s.Sampler.ShouldSample(p)
}

// Committed creates a span for a commit if it contains frames of sampled requests. It is a hook for
// journal.WithCommitHook.
func (t *Tracing) Committed(start time.Time, entries []*durable.Entry, err error) {
	var links []trace.Link
	for _, e := range entries {
		if h, err := batch.FrameHeader(e.Data); err == nil && h.Trace.IsSampled() {
			links = append(links, trace.Link{SpanContext: h.Trace})
		}
	}
	if len(links) == 0 {
		return
	}
	_, span := t.Start(context.Background(), "commit to the journal", trace.WithTimestamp(start), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("trafficd.frames", len(entries))))
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
