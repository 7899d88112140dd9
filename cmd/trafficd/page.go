package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline"
	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
	"trafficd/schemas/openapi"
	"trafficd/sinks/layers"
	"trafficd/sources/page"
)

const (
	followerTimeout = 10 * time.Second // for a follower to read an item
	mapPath         = "/map/"          // the map page on the clients' listener
	docsPath        = "/docs"          // the OpenAPI page on both listeners
)

// operatorRoutes returns the operators' listener's routes except those of package ops.
func (d *daemon) operatorRoutes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"GET /":                       page.New(d.cfg.UI, d.pageSettings(), "index.html"),
		"GET /status":                 d.status,
		"GET /rejections":             http.HandlerFunc(d.serveItems),
		"GET " + layers.Path:          http.HandlerFunc(d.serveLayer),
		"GET /schemas/openapi.yaml":   document(openapi.Document),
		"GET /schemas/operators.yaml": document(openapi.Operators),
		"GET " + docsPath:             http.StripPrefix(docsPath, page.Docs()),
		"GET " + docsPath + "/":       http.StripPrefix(docsPath, page.Docs()),
	}
	if d.cfg.UI.Basemap != "" {
		routes["GET /"+page.BasemapName] = http.HandlerFunc(d.cfg.UI.ServeBasemap)
	}
	if d.cfg.UI.Forecaster != "" {
		routes["GET "+page.StreetPath] = d.cfg.UI.Street()
	}
	return routes
}

func (d *daemon) pageSettings() page.Settings {
	return page.Settings{
		Horizons: d.cfg.Layers.Horizons, StaleAfter: d.cfg.Layers.StaleAfter.Seconds(), Forecasts: d.cfg.Forecasts.Feed != "",
	}
}

func document(text []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text) // fails only if the client has disconnected
	})
}

// serveLayer serves the layer to operators as the clients' listener would serve it to d.viewer.
func (d *daemon) serveLayer(w http.ResponseWriter, r *http.Request) {
	if !d.started.Load() {
		http.Error(w, "the daemon is starting; retry", http.StatusServiceUnavailable)
		return
	}
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod(r.Method)
	ctx.Request.SetRequestURI(r.URL.RequestURI())
	for name, values := range r.Header {
		for _, v := range values {
			ctx.Request.Header.Add(name, v)
		}
	}
	if _, err := d.layer.Handle(d.viewer.Load(), &ctx); err != nil {
		status, text := http.StatusInternalServerError, err.Error()
		if apiErr, ok := errors.AsType[*contract.APIError](err); ok {
			status, text = apiErr.Code.Status(), apiErr.Description
		}
		http.Error(w, text, status)
		return
	}
	for name, value := range ctx.Response.Header.All() {
		w.Header().Set(string(name), string(value))
	}
	w.WriteHeader(ctx.Response.StatusCode())
	_, _ = w.Write(ctx.Response.Body()) // fails only if the client has disconnected
}

// serveItems streams a sample of the rejected or accepted items as NDJSON.
func (d *daemon) serveItems(w http.ResponseWriter, r *http.Request) {
	if !d.started.Load() {
		http.Error(w, "the daemon is starting; retry", http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
	f := d.intake.Tap.Follow(pipeline.TapFilter{
		Client: q.Get("client"), Code: q.Get("code"), Detector: q.Get("detector"), Accepted: q.Has("accepted"),
	})
	if f == nil {
		http.Error(w, "too many followers; stop one", http.StatusServiceUnavailable)
		return
	}
	defer f.Stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	lines, out := json.NewEncoder(w), http.NewResponseController(w)
	err := out.Flush()
	for err == nil {
		select {
		case item := <-f.Items:
			_ = out.SetWriteDeadline(time.Now().Add(followerTimeout)) // the server supports it
			if err = lines.Encode(item); err == nil && len(f.Items) == 0 {
				err = out.Flush()
			}
		case <-r.Context().Done():
			return
		}
	}
}

// public is an api.Endpoint that needs no key.
type public func(ctx *fasthttp.RequestCtx) error

// Admit implements api.Endpoint.
func (public) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, nil
}

// Handle implements api.Endpoint.
func (p public) Handle(_ *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	return 0, p(ctx)
}

// serveFile serves a file without copying it.
func serveFile(ctx *fasthttp.RequestCtx, f page.File) error {
	for _, h := range f.Header {
		ctx.Response.Header.Set(h[0], h[1])
	}
	if negotiate.Unmodified(&ctx.Request.Header, []byte(f.ETag), time.Time{}) {
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	ctx.Response.SetBodyRaw(f.Body)
	return nil
}

// serveBasemap serves the basemap, or one range of it, without reading it into memory.
func (d *daemon) serveBasemap(ctx *fasthttp.RequestCtx) error {
	f, err := d.cfg.UI.OpenBasemap()
	if err != nil {
		return fmt.Errorf("cannot open the basemap (ui.basemap): %w", err)
	}
	for _, h := range f.Header {
		ctx.Response.Header.Set(h[0], h[1])
	}
	ctx.Response.Header.Set(fasthttp.HeaderAcceptRanges, "bytes")
	request := &ctx.Request.Header
	if negotiate.Unmodified(request, []byte(f.ETag), time.Time{}) {
		f.Reader.Close()
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	}
	part := negotiate.RangeOf(request, []byte(f.ETag), int(f.Size))
	if part.Whole {
		part.To = int(f.Size)
	} else {
		ctx.Response.Header.SetBytesV(fasthttp.HeaderContentRange, part.AppendContentRange(nil, int(f.Size)))
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
	}
	if part.Unsatisfiable {
		f.Reader.Close()
		ctx.SetStatusCode(fasthttp.StatusRequestedRangeNotSatisfiable)
		return nil
	}
	length := part.To - part.From
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f.Reader, int64(part.From), int64(length)), f.Reader}
	ctx.SetBodyStream(body, length) // closes body
	return nil
}
