package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"path"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline"
	"trafficd/schemas/contract"
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
	routes := map[string]http.Handler{"GET /status": d.status, "GET /rejections": http.HandlerFunc(d.serveItems)}
	add := func(path string, h public) { routes["GET "+path] = h }
	add(layers.Path, d.serveLayer)
	add("/schemas/openapi.yaml", page.Document("application/yaml", openapi.Document))
	add("/schemas/operators.yaml", page.Document("application/yaml", openapi.Operators))
	for name, h := range page.Docs() {
		add(path.Join(docsPath, name), h)
	}
	for name, h := range page.New(d.cfg.UI, d.pageSettings(), "index.html") {
		add("/"+cmp.Or(name, "{$}"), h)
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

// serveLayer serves the layer as the clients' listener would serve it to d.viewer.
func (d *daemon) serveLayer(ctx *fasthttp.RequestCtx) error {
	if !d.started.Load() {
		return contract.NewError(contract.ServiceUnavailable, starting)
	}
	_, err := d.layer.Handle(d.viewer.Load(), ctx)
	return err
}

const starting = "the daemon is starting; retry"

// serveItems streams a sample of the rejected or accepted items as NDJSON.
func (d *daemon) serveItems(w http.ResponseWriter, r *http.Request) {
	if !d.started.Load() {
		http.Error(w, starting, http.StatusServiceUnavailable)
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
