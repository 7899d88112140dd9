package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/follow"
	"trafficd/cmd/trafficctl/internal/forecast"
)

// maxWait is the longest time for which the daemon holds back a response without changes.
const maxWait = 30 * time.Second

type routeFollow struct {
	connection
	engine, output, tiles, run string
	horizon                    int
	staleAfter, every          time.Duration
	once                       bool
}

func newRouteFollow(std streams) *cobra.Command {
	c := &routeFollow{staleAfter: 15 * time.Minute, every: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "follow MATCHES",
		Short: "Write the speeds of the layer for a routing engine",
		Long: `Follow the forecast layer and write its speeds to the file that a routing engine reads.
MATCHES is what trafficctl route match has written for the engine's map. Streets without
a match, or with an ambiguous one, get no speed. The key needs the forecast right.

--for valhalla updates the live speeds (mjolnir.traffic_extract) in place, and Valhalla
uses them at once, for requests with date_time. It opens the file when it starts: if the
file does not exist, it is created for --tiles (mjolnir.tile_extract), so run follow with
--once before. Remove the file when you build new tiles.

--for osrm replaces the segment speed file. --run makes OSRM read it, at the start and
after changes, at most once per --every: osrm-datastore swaps the data of a running
osrm-routed --shared-memory. osrm-customize keeps the speeds of its last run in
MAP.osrm.geometry. Therefore, copy this file after osrm-extract and let --run restore it,
or streets without a speed keep their last one.

Closed streets are closed in the engine. If the newest forecasts are older than
--stale-after, all speeds are cleared until there are newer ones, also if the daemon does
not respond: the engine then uses its own speeds.

Exit codes: 0 interrupted or done, 1 failure.`,
		Example: `  trafficctl route follow city.ndjson --key-file map.key --for valhalla --tiles tiles.tar --output traffic.tar
  trafficctl route follow city.ndjson --key-file map.key --for osrm --output speeds.csv --run '
      cp extracted.geometry city.osrm.geometry && osrm-customize city.osrm --segment-speed-file speeds.csv &&
      osrm-datastore city.osrm --only-metric'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.follow(cmd.Context(), std, args[0]) },
	}
	f := cmd.Flags()
	c.register(f, client.Forecast)
	f.StringVar(&c.engine, "for", "", "routing engine: osrm or valhalla")
	f.StringVar(&c.output, "output", "", "file to write: a segment speed file (OSRM), or the live speeds (Valhalla)")
	f.StringVar(&c.tiles, "tiles", "", "archive of Valhalla's tiles, written by valhalla_build_extract")
	f.StringVar(&c.run, "run", "", "shell command that makes the engine read the file")
	f.DurationVar(&c.every, "every", c.every, "shortest time between two runs of --run")
	f.IntVar(&c.horizon, "horizon", 0, "write the forecasts for this many minutes from now")
	f.DurationVar(&c.staleAfter, "stale-after", c.staleAfter, "age of the newest forecasts at which all speeds are cleared")
	f.BoolVar(&c.once, "once", false, "write the speeds once, then exit")
	return cmd
}

func (c *routeFollow) validate() error {
	switch {
	case c.engine != "osrm" && c.engine != "valhalla":
		return fmt.Errorf("--for %q must be osrm or valhalla", c.engine)
	case c.output == "":
		return errors.New("--output is missing: it names the file that the engine reads")
	case (c.engine == "valhalla") != (c.tiles != ""):
		return errors.New("--tiles is required with --for valhalla, and only there: it names the archive of the tiles (mjolnir.tile_extract)")
	case c.horizon < 0:
		return fmt.Errorf("--horizon %d must be at least 0", c.horizon)
	case c.every < time.Second:
		return fmt.Errorf("--every %s must be at least 1s", c.every)
	case c.staleAfter < time.Minute:
		return fmt.Errorf("--stale-after %s must be at least 1m: forecasts are not published more often", c.staleAfter)
	}
	return nil
}

func (c *routeFollow) follow(ctx context.Context, std streams, path string) error {
	if err := c.validate(); err != nil {
		return err
	}
	daemon, err := c.client()
	if err != nil {
		return err
	}
	defer daemon.Close()
	var mu sync.Mutex
	log := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(std.err, "trafficctl: "+format+"\n", args...)
	}
	target, streets, err := c.target(ctx, std, path, log)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	f := &follow.Follower{
		Target: target, Streets: streets, StaleAfter: c.staleAfter, Every: c.every, Log: log, Progress: log,
		Get: func(ctx context.Context, since string) (*forecast.Response, error) {
			wait := min(maxWait, (c.cfg.Timeout / 2).Truncate(time.Second))
			return forecast.Get(ctx, daemon, forecast.Query{Horizon: c.horizon, Since: since, Wait: wait})
		},
	}
	if c.quiet {
		f.Progress = func(string, ...any) {}
	}
	if c.run != "" {
		f.Run = c.command
	}
	if c.once {
		return f.Once(ctx)
	}
	return f.Follow(ctx)
}

// target reads the matches and opens the engine's file.
func (c *routeFollow) target(
	ctx context.Context, std streams, path string, log func(string, ...any),
) (follow.Target, follow.Streets, error) {
	all, err := readMatches(ctx, std, path)
	if err != nil {
		return nil, nil, err
	}
	matches, streets := follow.Usable(all)
	if !c.quiet {
		log("%s matched, %s without a match or ambiguous", plural(len(matches), "street"), grouped(len(all)-len(matches)))
	}
	if c.engine == "valhalla" {
		target, err := follow.Valhalla(c.output, c.tiles, matches, streets, log)
		return target, streets, err
	}
	if c.run == "" {
		log("OSRM does not read %s without --run; see trafficctl route follow --help", c.output)
	}
	target, err := follow.OSRM(c.output, matches, streets)
	return target, streets, err
}

// command runs --run. An interrupt does not end it, so that the engine's data remain whole.
func (c *routeFollow) command(ctx context.Context) error {
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", c.run).CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		if i := len(text) - maxCommandOutput; i > 0 {
			text = "…" + text[i:]
		}
		return fmt.Errorf("cannot run --run %q: %w\n%s", c.run, err, text)
	}
	return nil
}

const maxCommandOutput = 2000 // bytes of the output of a failed command that are printed
