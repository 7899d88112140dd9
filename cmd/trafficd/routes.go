package main

import (
	"trafficd/schemas/contract"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
)

// routes is what clients can ask for (contract 4).
func (d *daemon) routes() []api.Route {
	return append(append(schemaRoutes(), d.routingRoutes()...),
		api.Route{Path: ingest.Path, Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: d.endpoint},
		d.forecastRoute(),
	)
}
