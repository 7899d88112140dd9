package main

import "github.com/spf13/cobra"

func newRoute(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "route",
		Short: "Give a routing engine the speeds of the layer",
		Long: `Give a routing engine on OpenStreetMap, OSRM or Valhalla, the speeds of the forecast
layer: match finds the streets on the engine's map, and follow writes their speeds.
deployments/routing.md shows all steps.`,
		Example: `  trafficctl route match --map city.osm.pbf --key-file map.key --output city.ndjson
  trafficctl route follow city.ndjson --key-file map.key --for valhalla --tiles tiles.tar --output traffic.tar`,
	}, newRouteMatch(std), newRouteFollow(std))
}
