package main

import (
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/feed"
)

func newResubmit(std streams) *cobra.Command {
	s, cfg := newSending(), feed.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "resubmit FILE|-",
		Short: "Send rejected items again, after correction",
		Long: `Sends the items of a file that send --rejected wrote. Each line is an object whose
member "item" is the measurement; correct it in place, by hand or with jq, or
mend the cause (a registry without the detector) and send the file as it is.
Lines to be given up are deleted. The other members are not looked at.

Items that are rejected again go to --rejected FILE, which must be a new file.
Exit codes as for trafficctl send.`,
		Example: `  trafficctl send day.csv --rejected rejected.ndjson
  jq -c '.item.measureTypeCode |= ascii_downcase' rejected.ndjson > corrected.ndjson
  trafficctl resubmit corrected.ndjson --rejected still-rejected.ndjson`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Path, cfg.Format, cfg.Member = args[0], feed.NDJSON, "item"
			return sendFile(cmd.Context(), cmd.Flags(), std, s, cfg)
		},
	}
	s.register(cmd.Flags())
	cmd.Flags().Int64Var(&cfg.SkipRows, "skip-rows", 0, "leave out so many lines at the start: an earlier run has sent them")
	return cmd
}
