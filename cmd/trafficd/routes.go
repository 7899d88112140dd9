package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/schemas/contract"
	"trafficd/schemas/openapi"
	"trafficd/schemas/proto"
	"trafficd/schemas/xroute"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
	"trafficd/sources/page"
	"trafficd/sources/routing"
	"trafficd/sources/sites"
)

// schemasPath is the path of the interface descriptions. Below it, each protobuf definition has the
// path by which others import it.
const schemasPath = "/schemas/"

const descriptorSet = "trafficd.binpb" // the definitions of protobuf in one file, for protoc --descriptor_set_in

const (
	mapPath  = "/map/"           // the map page on the clients' listener
	docsPath = contract.DocsPath // the OpenAPI page on both listeners
)

// start is the page at /. Its links are relative, because a proxy may add a prefix.
const start = `<!doctype html>
<title>trafficd</title>
<p>This is trafficd, a server for road traffic data.
<ul>
<li><a href="docs">docs</a>: the interface, with examples; <a href="schemas/openapi.yaml">OpenAPI</a>
<li><a href="schemas/">schemas/</a>: its definitions for tools
</ul>
`

var toDocs = page.Redirect(".." + docsPath) // from the path with a trailing slash

// publicMethods lists the methods that public documents allow. Schemas are public, because the
// tools that download them have no key.
var publicMethods = []string{fasthttp.MethodGet, fasthttp.MethodHead}

// routes returns everything that the clients' listener serves (contract 6.5).
func (d *daemon) routes() []api.Route {
	ingestion := ingest.New(d.cfg.Ingest, d.intake, d.log)
	ingestion.Receipts = d.receipts
	d.keys.BeforeUse(ingestion.UseClients)
	var layer, tiles api.Endpoint = d.layer, layers.Tiles{Layer: d.layer}
	if d.cfg.Forecasts.Feed == "" {
		layer, tiles = noLayer{layer}, noLayer{tiles}
	}
	routes := []api.Route{
		{Path: ingest.Path, Methods: []string{fasthttp.MethodPost}, Right: contract.RightIngest, Endpoint: ingestion},
		{
			Path: ingest.CapabilitiesPath, Methods: publicMethods, Right: contract.RightIngest,
			Endpoint: &ingest.Capabilities{Capabilities: d.capabilities(), Registry: d.registry},
		},
		{Path: ingest.BatchesPath, Methods: publicMethods, Right: contract.RightIngest, Endpoint: d.batches()},
		{Path: contract.HealthPath, Methods: publicMethods, Right: contract.RightIngest, Endpoint: d.health},
		{
			Path: layers.Path, Methods: layers.Methods, Right: contract.RightForecast,
			Endpoint: layer, QueryKey: d.cfg.Layers.QueryKey,
		},
		{
			Path: layers.TilePath, Methods: layers.Methods, Right: contract.RightForecast,
			Endpoint: tiles, QueryKey: d.cfg.Layers.QueryKey,
		},
		{
			Path: routing.Path, Methods: append([]string{fasthttp.MethodPost}, publicMethods...), Open: publicMethods,
			Right: contract.RightRouting, Endpoint: d.routing, Basic: true,
		},
	}
	add := func(path string, h public) {
		routes = append(routes, api.Route{Path: path, Methods: publicMethods, Open: publicMethods, Endpoint: h})
	}
	schema := func(path, mediaType string, content []byte) { add(path, page.Document(mediaType, content)) }
	for _, name := range xroute.SchemaNames() { // the WSDL imports them by relative paths
		schema(path.Join(path.Dir(routing.Path), name), "text/xml; charset=utf-8", xroute.Schema(name, d.cfg.Routing.VendorPrefix))
	}
	list := "openapi.yaml\n"
	schema(schemasPath+"openapi.yaml", "application/yaml", openapi.Document)
	for _, name := range protoFiles() {
		content, _ := proto.Files.ReadFile(name) // the name comes from the list
		schema(schemasPath+name, "text/plain; charset=utf-8", content)
		list += name + "\n"
	}
	if set, err := proto.DescriptorSet(); err == nil { // it cannot fail: it is made of generated code
		schema(schemasPath+descriptorSet, "application/x-protobuf", set)
		list += descriptorSet + "\n"
	}
	schema(schemasPath, "text/plain; charset=utf-8", []byte(list))
	for name, h := range page.Docs() {
		add(path.Join(docsPath, name), h)
	}
	add(docsPath+"/", toDocs)
	schema("/", "text/html; charset=utf-8", []byte(start))
	if d.cfg.UI.Clients {
		add(strings.TrimSuffix(mapPath, "/"), page.Redirect("."+mapPath))
		for name, h := range page.New(d.cfg.UI, d.pageSettings(), "map.html") {
			add(mapPath+name, h)
		}
	}
	return routes
}

// batches returns the endpoint that says what became of batches.
func (d *daemon) batches() *ingest.Batches {
	e := &ingest.Batches{Receipts: d.receipts, Log: d.log, Behind: func() bool {
		return slices.ContainsFunc(d.deliveries, func(x *delivery) bool { s := x.Status(); return s.Frames > 0 && s.Lag > forgotten })
	}}
	if d.cfg.ClickHouse.Enabled {
		e.Archive = config.ArchiveSink
	}
	if d.cfg.Kafka.Enabled {
		e.Topic = config.TopicSink
	}
	return e
}

// forgotten is the age of an undelivered frame from which on its batch may have no receipt: that of
// its acceptance was lost, as after a kill.
const forgotten = 2 * time.Second

// capabilities returns what the configuration allows all keys to send.
func (d *daemon) capabilities() contract.Capabilities {
	p := &d.cfg.Pipeline
	c := contract.Capabilities{
		Limits: contract.IngestLimits{
			ItemsPerBatch: p.Decode.BatchLimit, ItemsPerRequest: cmp.Or(p.Decode.HardLimit, 10*p.Decode.BatchLimit),
			CompressedBytes: d.cfg.Ingest.MaxCompressedBytes, DecompressedBytes: p.MaxBodyBytes,
			FutureToleranceSeconds: p.Validate.FutureTolerance.Seconds(), IdempotencySeconds: p.Idempotency.Window.Seconds(),
		},
		MeasureTypes: []contract.AllowedType{},
		Quality:      contract.AllowedRange{Min: p.Validate.QualityMin, Max: p.Validate.QualityMax},
	}
	for _, t := range p.Validate.MeasureTypes {
		c.MeasureTypes = append(c.MeasureTypes, contract.AllowedType{
			Code: t.Code, AllowedRange: contract.AllowedRange{Min: t.Min, Max: t.Max}, Unit: t.Unit,
		})
	}
	return c
}

// operatorRoutes returns the operators' listener's routes except those of package ops.
func (d *daemon) operatorRoutes() map[string]http.Handler {
	routes := map[string]http.Handler{"GET /status": d.status, "GET /rejections": http.HandlerFunc(d.serveItems)}
	add := func(path string, h public) { routes["GET "+path] = h }
	add(layers.Path, d.whenStarted(d.serveLayer))
	add("/schemas/openapi.yaml", page.Document("application/yaml", openapi.Document))
	add("/schemas/operators.yaml", page.Document("application/yaml", openapi.Operators))
	for name, h := range page.Docs() {
		add(path.Join(docsPath, name), h)
	}
	add(docsPath+"/{$}", toDocs)
	for name, h := range page.New(d.cfg.UI, d.pageSettings(), "index.html") {
		add("/"+cmp.Or(name, "{$}"), h)
	}
	if d.sites != nil {
		add(sites.Path, d.sites.ServeSites)
		add(sites.HourPath, d.sites.ServeHour)
		add(sites.EvidencePath, d.sites.ServeEvidence)
		add(sites.HealthPath, d.whenStarted(func(ctx *fasthttp.RequestCtx) error { return d.health.Serve(ctx) }))
	}
	if d.cfg.UI.Forecaster != "" {
		for _, path := range page.ForecasterPaths {
			routes["GET "+path] = d.cfg.UI.Streets()
		}
	}
	return routes
}

func (d *daemon) pageSettings() page.Settings {
	horizons := slices.Clone(d.cfg.Layers.Horizons)
	slices.Sort(horizons) // in the order of time
	s := page.Settings{
		Horizons: horizons, StaleAfter: d.cfg.Layers.StaleAfter.Seconds(), Forecasts: d.cfg.Forecasts.Feed != "",
		Sites: d.cfg.ClickHouse.Enabled,
	}
	for _, t := range d.cfg.Pipeline.Validate.MeasureTypes {
		s.MeasureTypes = append(s.MeasureTypes, page.MeasureType{Code: t.Code, Unit: t.Unit, Min: t.Min, Max: t.Max})
	}
	return s
}

// serveLayer serves the layer as the clients' listener would serve it to d.viewer.
func (d *daemon) serveLayer(ctx *fasthttp.RequestCtx) error {
	_, err := d.layer.Handle(d.viewer.Load(), ctx)
	return err
}

// whenStarted returns a handler that responds with 503 until all parts exist.
func (d *daemon) whenStarted(h public) public {
	return func(ctx *fasthttp.RequestCtx) error {
		if !d.started.Load() {
			return contract.NewError(contract.ServiceUnavailable, starting)
		}
		return h(ctx)
	}
}

const starting = "the daemon is starting; retry"

const followerTimeout = 10 * time.Second // for a follower to read an item

// serveItems streams a sample of the rejected or accepted items as NDJSON.
func (d *daemon) serveItems(w http.ResponseWriter, r *http.Request) {
	if !d.started.Load() {
		http.Error(w, starting, http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
	filter := pipeline.TapFilter{Client: q.Get("client"), Code: q.Get("code"), Detector: q.Get("detector"), Accepted: q.Has("accepted")}
	if err := filter.Validate(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f := d.intake.Tap.Follow(filter)
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

// public handles GET and HEAD without a key, for clients as an api.Endpoint and for operators as an
// http.Handler.
type public func(ctx *fasthttp.RequestCtx) error

// Admit implements api.Endpoint.
func (public) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError {
	return nil
}

// Handle implements api.Endpoint.
func (p public) Handle(_ *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	return 0, p(ctx)
}

// ServeHTTP implements http.Handler. Errors are plain text.
func (p public) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod(r.Method)
	ctx.Request.SetRequestURI(r.URL.RequestURI())
	for name, values := range r.Header {
		for _, v := range values {
			ctx.Request.Header.Add(name, v)
		}
	}
	if err := p(&ctx); err != nil {
		status, text := http.StatusInternalServerError, err.Error()
		if apiErr, ok := errors.AsType[*contract.APIError](err); ok {
			status, text = apiErr.Code.Status(), apiErr.Description
		}
		http.Error(w, text, status)
		return
	}
	response := &ctx.Response
	if !response.IsBodyStream() { // a stream has set it
		response.Header.SetContentLength(len(response.Body()))
	}
	for name, value := range response.Header.All() {
		w.Header().Set(string(name), string(value))
	}
	w.WriteHeader(response.StatusCode())
	if r.Method == http.MethodHead {
		_ = response.CloseBodyStream()
		return
	}
	_ = response.BodyWriteTo(w) // if it fails, the server closes the connection early
}

// noLayer rejects all requests with 403 when there is no feed. A layer that is not built yet
// responds with 503, which makes clients retry.
type noLayer struct{ api.Endpoint }

// Admit implements api.Endpoint.
func (noLayer) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError {
	return contract.NewError(contract.Forbidden, "no forecasts are configured; the operator must set forecasts.feed")
}

func protoFiles() []string {
	names, _ := fs.Glob(proto.Files, "trafficd/v1/*.proto") // the pattern is valid
	return names
}
