package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/feed"
)

const sendHelp = `Reads measurements from a file (or standard input: -) and sends them in batches.

Formats: CSV, JSON ({"measurements":[…]} or an array) and NDJSON; packed with
gzip, xz or zstd, or not. Both are found out by the file's name and first bytes.

JSON and NDJSON items with the member names of the specification are sent as
they are. For CSV, or as soon as one of the mapping flags is given, columns or
members are named by those flags; left alone, they have the names of the
specification: detectorCode, measureTypeCode, timestampFrom, timestampTo, value
and, where there is one, quality. A wide table is melted: each column that
--melt names becomes a measurement of that type. An empty value is left out.

Timestamps without a zone are taken to be in --zone and converted to UTC. A local
time that the clocks skip in spring does not exist: its row is a bad row. One
that they show twice in autumn is a bad row as well unless --dst-overlap says
which of the two is meant.

A row that cannot be read stops the sending, after the rows before it, with its
line number; --on-bad-row skip passes over it.

The measurements of one detector arrive in the order of the input unless
--no-order is given. A batch without an answer is sent again with the same
Idempotency-Key, so that it arrives once.

Exit codes: 0 all accepted, 2 some items were rejected (or rows passed over),
1 failure: the summary still says what was acknowledged.`

const sendExamples = `  # columns named like the specification's members
  trafficctl send measurements.csv.gz --url https://traffic.example.org --key-file si.key

  # one row a link and interval, with speed and count in columns of their own
  trafficctl send observations.csv.xz --detector report_id --from timestamp --interval 5m \
      --melt avg_speed_kmh=speed,vehicle_count=flow --rejected rejected.ndjson

  # local times, semicolons, decimal commas, no header, all rows speeds
  trafficctl send loops.txt --format csv --separator ';' --decimal , --columns id,at,kmh \
      --detector id --from at --interval 1m --value kmh --type =speed \
      --zone Europe/Copenhagen --time-layout '02.01.2006 15:04' --dst-overlap first

  # objects with other names, from a pipe
  zcat log.gz | jq -c .event | trafficctl send - --format ndjson --detector loop --from t0 --to t1 \
      --value v --type =occupancy --time-layout unix`

func newSend(std streams) *cobra.Command {
	s, r := newSending(), newReading()
	cmd := &cobra.Command{
		Use:     "send [FILE|-]",
		Short:   "Send measurements from CSV, JSON or NDJSON",
		Long:    sendHelp,
		Example: sendExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := r.config(cmd.Flags(), args)
			if err != nil {
				return err
			}
			return sendFile(cmd.Context(), cmd.Flags(), std, s, cfg)
		},
	}
	s.register(cmd.Flags())
	r.register(cmd.Flags())
	return cmd
}

// sendFile opens the input, sends it and closes it.
func sendFile(ctx context.Context, flags *pflag.FlagSet, std streams, s *sending, cfg feed.Config) error {
	source, err := feed.Open(ctx, cfg, std.in)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	in := input{items: source.Items(), bytes: source.BytesRead, size: source.Size(), empty: source.Empty, again: "--skip-rows %d"}
	return s.run(ctx, flags, std, in)
}
