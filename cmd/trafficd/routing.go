package main

import (
	"context"
	"path"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
	"trafficd/sources/api"
	"trafficd/sources/routing"
)

func (d *daemon) startRouting() error {
	scheme := "http"
	if d.cfg.API.TLSCert != "" {
		scheme = "https"
	}
	d.routing = routing.New(d.cfg.Routing, scheme, d.log)
	return nil
}

func (d *daemon) stopRouting(context.Context) error {
	d.routing.Stop()
	return nil
}

// routingRoutes are the service and, beside it, the schemas that its WSDL imports.
// Descriptions are for everybody to read, requests need a key.
func (d *daemon) routingRoutes() []api.Route {
	list := []api.Route{{
		Path: routing.Path, Methods: append([]string{fasthttp.MethodPost}, schemaMethods...), Open: schemaMethods,
		Right: contract.RightRouting, Endpoint: d.routing, Basic: true,
	}}
	for _, name := range xroute.SchemaNames() {
		text, _ := xroute.Schema(name, "") // is one of them
		list = append(list, api.Route{
			Path: path.Join(path.Dir(routing.Path), name), Methods: schemaMethods, Open: schemaMethods,
			Endpoint: newSchema("text/xml; charset=utf-8", text),
		})
	}
	return list
}
