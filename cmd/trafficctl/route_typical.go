package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/follow"
)

func newRouteTypical(std streams) *cobra.Command {
	var base, tiles, output string
	cmd := &cobra.Command{
		Use:   "typical MATCHES",
		Short: "Write the typical speeds of a week for Valhalla",
		Long: `Write the typical speeds of each hour of a week, which the forecaster has learned, as
Valhalla's predicted speeds. MATCHES is what trafficctl route match has written for the
engine's map. The speeds come from the operators' listener of a daemon with the setting
ui.forecaster; those between two hours are interpolated. A weekday that has not been
learned yet gets the mean of the others.

--output is a new directory with a CSV file for each tile. valhalla_add_predicted_traffic
adds it to the tiles, from which valhalla_build_extract must then build the archive again.
Valhalla uses the speeds for requests with date_time, at the local time of the streets.
The forecaster's time zone must be the same.`,
		Example: `  trafficctl route typical city.ndjson --tiles tiles.tar --output typical
  valhalla_add_predicted_traffic -c valhalla.json -t typical`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tiles == "" || output == "" {
				return errors.New("--tiles and --output are required: the archive of the tiles (mjolnir.tile_extract), and a new directory")
			}
			all, err := readMatches(cmd.Context(), std, args[0])
			if err != nil {
				return err
			}
			matches, streets := follow.Usable(all)
			log := func(format string, args ...any) { fmt.Fprintf(std.err, "trafficctl: "+format+"\n", args...) }
			edges, err := follow.Typical(output, tiles, matches, streets, func(query string, response any) error {
				values, _ := url.ParseQuery(query) // valid
				body, err := getOperators(cmd.Context(), base, "/streets", values)
				if err != nil {
					return err
				}
				defer body.Close()
				if err := json.NewDecoder(body).Decode(response); err != nil {
					return fmt.Errorf("cannot decode the response of %s/streets: %w", base, err)
				}
				return nil
			}, log)
			if err != nil {
				return err
			}
			log("wrote the typical speeds of %s of Valhalla to %s", plural(edges, "edge"), output)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&base, "url", operatorsURL, "address of the operators' listener")
	f.StringVar(&tiles, "tiles", "", "archive of Valhalla's tiles, written by valhalla_build_extract")
	f.StringVar(&output, "output", "", "new directory for the files")
	return cmd
}
