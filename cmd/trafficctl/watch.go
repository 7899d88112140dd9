package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/must"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/forecast"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

func newForecastWatch(std streams) *cobra.Command {
	var c connection
	r := forecast.Request{Horizon: -1, Wait: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the forecast layer of a daemon",
		Long: `Print each street of the forecast layer, and then each change as soon as the daemon has it,
until interrupted. The key needs the forecast right.

Each line of standard output is a StreetForecast in protobuf's JSON mapping; a street
without a forecast was removed or has no period to show. A summary of each response is
printed to standard error. If the daemon cannot be reached after the first response,
watch retries every few seconds.`,
		Example: `  trafficctl forecast watch --key-file map.key --horizon 30
  trafficctl forecast watch --key-file map.key --part tile=12/2190/1282 | jq .street`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon := must.Get(c.client())
			defer daemon.Close()
			if r.Wait = min(r.Wait, c.cfg.Timeout/2); r.Wait < time.Second {
				return errors.New("--wait must be at least 1s, and --timeout at least 2s")
			}
			return watch(cmd.Context(), std, daemon, r, c.quiet)
		},
	}
	f := cmd.Flags()
	c.register(f, client.Forecast)
	f.IntVar(&r.Horizon, "horizon", r.Horizon, "only the period that is this many minutes from now; -1 for all periods")
	f.StringVar(&r.Part, "part", "", "only these streets: tile=z/x/y, bbox=minLon,minLat,maxLon,maxLat or street=1,2,3")
	f.DurationVar(&r.Wait, "wait", r.Wait, "how long the daemon may wait for a change, at most half of --timeout")
	return cmd
}

const watchRetryInterval = 5 * time.Second

// watch prints the layer and its changes until ctx is done. It retries any request but the first.
func watch(ctx context.Context, std streams, daemon *client.Client, r forecast.Request, quiet bool) error {
	known := codes{}
	for {
		start := time.Now()
		resp, err := forecast.Get(ctx, daemon, r)
		version := ""
		if err == nil {
			if version = resp.Get("Forecast-Version"); version == "" {
				err = errors.New("the daemon does not send the header Forecast-Version; upgrade it to the version of trafficctl")
			}
		}
		switch {
		case err != nil && r.Since == "":
			return err
		case ctx.Err() != nil:
			return nil // interrupted
		case err != nil:
			fmt.Fprintln(std.err, "trafficctl:", err)
		}
		if err != nil || version == r.Since {
			if err != nil || time.Since(start) < time.Second { // the daemon had too many waiting clients
				_ = client.Sleep(ctx, watchRetryInterval)
			}
			continue
		}
		summary := describe(resp)
		known.complete(resp)
		if len(resp.Layer.StreetForecast) > 0 || r.Since == "" {
			if !quiet {
				fmt.Fprintln(std.err, "trafficctl:", summary)
			}
			must.Get(publish.Write(std.out, forecasts.FormatNDJSON, slices.Values(resp.Layer.StreetForecast)))
		}
		r.Since = version
	}
}

// codes maps each street and fromnode to its openLRcode.
type codes map[[2]int32]string

// complete fills in the codes that resp omits because they are unchanged, and records the others.
// If resp is a whole layer, complete adds the known streets that it lacks, without a forecast.
func (c codes) complete(resp *forecast.Response) {
	if resp.Get("Forecast-Content") != "changes" {
		gone := maps.Clone(c)
		clear(c)
		for _, s := range resp.Layer.StreetForecast {
			delete(gone, [2]int32{s.Street, s.Fromnode})
		}
		for k, code := range gone {
			removed := &pb.StreetForecast{Street: k[0], Fromnode: k[1], OpenLRcode: code}
			resp.Layer.StreetForecast = append(resp.Layer.StreetForecast, removed)
		}
	}
	for _, s := range resp.Layer.StreetForecast {
		k := [2]int32{s.Street, s.Fromnode}
		if s.OpenLRcode == "" {
			s.OpenLRcode = c[k]
		}
		if c[k] = s.OpenLRcode; len(s.Forecast) == 0 {
			delete(c, k)
		}
	}
}
