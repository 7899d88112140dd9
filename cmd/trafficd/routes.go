package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
	"trafficd/schemas/openapi"
	"trafficd/schemas/proto"
	"trafficd/schemas/xroute"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
	"trafficd/sources/page"
	"trafficd/sources/routing"
)

// schemasPath is the path of the interface descriptions. Below it, each protobuf definition has the
// path by which others import it.
const schemasPath = "/schemas/"

// publicMethods lists the methods that public documents allow. Schemas are public, because the
// tools that download them have no key.
var publicMethods = []string{fasthttp.MethodGet, fasthttp.MethodHead}

// routes returns everything that the clients' listener serves (contract 6.5).
func (d *daemon) routes() []api.Route {
	ingestion := ingest.New(d.cfg.Ingest, d.intake, d.log)
	d.keys.BeforeUse(ingestion.UseClients)
	var layer api.Endpoint = d.layer
	if d.cfg.Forecasts.Feed == "" {
		layer = noLayer{layer}
	}
	routes := []api.Route{
		{Path: ingest.Path, Methods: []string{fasthttp.MethodPost}, Right: contract.RightIngest, Endpoint: ingestion},
		{
			Path: layers.Path, Methods: layers.Methods, Right: contract.RightForecast,
			Endpoint: layer, QueryKey: d.cfg.Layers.QueryKey,
		},
		{
			Path: routing.Path, Methods: append([]string{fasthttp.MethodPost}, publicMethods...), Open: publicMethods,
			Right: contract.RightRouting, Endpoint: d.routing, Basic: true,
		},
	}
	add := func(path string, e public) {
		routes = append(routes, api.Route{Path: path, Methods: publicMethods, Open: publicMethods, Endpoint: e})
	}
	addFile := func(path string, p page.Page, name string) {
		add(path, func(ctx *fasthttp.RequestCtx) error {
			f, _ := p.File(name, negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding)))
			return serveFile(ctx, f)
		})
	}
	schema := func(path, mediaType string, content []byte) {
		digest := sha256.Sum256(content)
		f := page.File{Body: content, ETag: fmt.Sprintf(`"%x"`, digest[:8])}
		// Caches must revalidate, because the content changes with the daemon's version.
		f.Header = [][2]string{{"Content-Type", mediaType}, {"Cache-Control", "public, no-cache"}, {"ETag", f.ETag}}
		add(path, func(ctx *fasthttp.RequestCtx) error { return serveFile(ctx, f) })
	}
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
	schema(schemasPath, "text/plain; charset=utf-8", []byte(list))
	docs := page.Docs()
	for name := range docs {
		addFile(path.Join(docsPath, name), docs, name)
	}
	if d.cfg.UI.Clients {
		p := page.New(d.cfg.UI, d.pageSettings(), "map.html")
		for name := range p {
			addFile(mapPath+name, p, name)
		}
		if d.cfg.UI.Basemap != "" {
			add(mapPath+page.BasemapName, d.serveBasemap)
		}
	}
	return routes
}

// noLayer rejects all requests with 403 when there is no feed. A layer that is not built yet
// responds with 503, which makes clients retry.
type noLayer struct{ api.Endpoint }

// Admit implements api.Endpoint.
func (noLayer) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, contract.NewError(contract.Forbidden, "no forecasts are configured; the operator must set forecasts.feed")
}

// protoFiles lists the embedded protobuf definitions.
func protoFiles() []string {
	names, _ := fs.Glob(proto.Files, "trafficd/v1/*.proto") // the pattern is valid
	return names
}
