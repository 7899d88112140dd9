package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/schemas/contract"
)

func newDetectors(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:     "detectors",
		Short:   "Show which detectors need a repair",
		Example: "  trafficctl detectors health --key-file ingest.key",
	}, newDetectorsHealth(std))
}

func newDetectorsHealth(std streams) *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "health",
		Short: "List the detectors whose measurements mislead or are missing",
		Long: `List the detectors of the key's product instance whose measurements mislead or are missing,
with the time since when and the numbers that show it. The key needs the ingest right.

The operator's forecaster tests the detectors after each interval. A detector disappears
from the list with the first test that it passes.`,
		Example: "  trafficctl detectors health --key-file ingest.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := c.client()
			if err != nil {
				return err
			}
			defer daemon.Close()
			req, err := daemon.NewRequest(cmd.Context(), http.MethodGet, nil)
			if err != nil {
				return err
			}
			resp, err := daemon.Do(req)
			switch {
			case err != nil && cmd.Context().Err() != nil:
				return interrupt.Error(cmd.Context())
			case err != nil:
				return fmt.Errorf("cannot get the health of the detectors: %w", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return daemon.ReadError(resp)
			}
			var h contract.Health
			if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
				return fmt.Errorf("cannot read the response: %w", err)
			}
			if !c.quiet {
				fmt.Fprintf(std.err, "trafficctl: %s of product instance %s, tested at %s\n",
					plural(h.Count, "state"), printable(h.ProductInstance), h.CheckedAt.UTC().Format(time.RFC3339))
			}
			table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "DETECTOR\tTYPE\tSTATE\tSINCE\tREASON")
			for _, d := range h.Detectors {
				code := d.DetectorCode
				if code == "" {
					code = "(many)"
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", printable(code), printable(d.MeasureTypeCode), printable(d.State),
					d.Since.UTC().Format(time.RFC3339), printable(d.Reason))
			}
			if hidden := h.Count - len(h.Detectors); hidden > 0 {
				fmt.Fprintf(table, "… and %s more\n", grouped(hidden))
			}
			return table.Flush()
		},
	}
	c.register(cmd.Flags(), client.Health)
	return cmd
}
