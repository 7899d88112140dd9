package main

import (
	"trafficd/pipeline/batch"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
)

// routes is what clients can ask for (interface specification, part 4).
func (d *daemon) routes() []api.Route {
	return append(append(schemaRoutes(), d.routingRoutes()...),
		api.Route{Path: ingest.Path, Methods: []string{"POST"}, Right: batch.RightIngest, Endpoint: d.endpoint},
		d.forecastRoute(),
	)
}
