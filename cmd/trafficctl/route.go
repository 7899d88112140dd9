package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/route"
)

func newRoute(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "route",
		Short: "Give a routing engine the speeds of the layer",
		Long: `Give a routing engine on OpenStreetMap, OSRM or Valhalla, the speeds of the forecast
layer: match finds the streets on the engine's map, and follow writes their speeds. typical
writes the speeds of a usual week, for Valhalla. deployments/routing.md shows all steps.`,
		Example: `  trafficctl route match --map city.osm.pbf --key-file map.key --output city.ndjson
  trafficctl route follow city.ndjson --key-file map.key --for valhalla --tiles tiles.tar --output traffic.tar`,
	}, newRouteMatch(std), newRouteFollow(std), newRouteTypical(std))
}

// readMatches reads a file that route match has written. It may be compressed.
func readMatches(ctx context.Context, std streams, path string) ([]route.Match, error) {
	file, err := feed.OpenFile(ctx, path, std.in)
	if err != nil {
		return nil, fmt.Errorf("cannot read the matches: %w; create the file with trafficctl route match", err)
	}
	defer func() { _ = file.Close() }()
	matches, err := route.ReadMatches(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the matches in %s: %w", path, err)
	}
	return matches, nil
}
