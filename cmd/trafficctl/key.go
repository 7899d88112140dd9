package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/keyfile"
)

func newKey(std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create, list and revoke API keys",
		Long: `Create, list and revoke the API keys in a daemon's keys file. The file contains SHA-256
digests, never keys. A running daemon reloads it when it changes.`,
	}
	cmd.AddCommand(newKeyNew(std), newKeyList(std), newKeyRevoke(std))
	return cmd
}

func newKeyNew(std streams) *cobra.Command {
	var e keyfile.Entry
	var file, expires string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create an API key and its entry in the keys file",
		Long: `Generate a random key and print it on the first line of standard output. It is not
shown again: the daemon's keys file contains only its SHA-256 digest.

With --file, the entry is added to that file atomically, and comments in the file are
kept. Without --file, the entry is printed below the key, for the list keys.`,
		Example: `  trafficctl key new --name acme --product-instance north --rights ingest --file keys.yaml > acme.key
  trafficctl key new --name trial --product-instance north --rights ingest --expires 720h --file keys.yaml
  trafficctl key new --name map --product-instance north --rights forecast --timezone Europe/Copenhagen --requests-per-second 50`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if e.Expires, err = parseExpiry(expires, time.Now()); err != nil {
				return err
			}
			if err = e.Validate(); err != nil {
				return err
			}
			key := keyfile.NewKey()
			e.SHA256 = keyfile.Digest(key)
			if file == "" {
				_, err = fmt.Fprintf(std.out, "%s\n\n%s", key, e.Text())
				return err
			}
			if err = keyfile.Append(file, e); err != nil {
				return err
			}
			fmt.Fprintf(std.err, "trafficctl: added key %q to %s; the line on standard output is the key, which is not shown again\n",
				e.Name, file)
			_, err = fmt.Fprintln(std.out, key)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.Name, "name", "", "name of the key in logs and metrics (required)")
	f.StringVar(&e.ProductInstance, "product-instance", "", "product instance of the key (required)")
	f.StringSliceVar(&e.Rights, "rights", nil, "comma-separated list of ingest, forecast, routing (required)")
	f.StringVar(&e.Timezone, "timezone", "UTC", "IANA time zone of the client, used in the forecast layer")
	f.Float64Var(&e.RequestsPerSecond, "requests-per-second", 0, "rate limit in requests per second; 0 for none")
	f.Float64Var(&e.ItemsPerSecond, "items-per-second", 0, "rate limit in measurements per second; 0 for none")
	f.StringVar(&expires, "expires", "", "when the key expires: a duration such as 720h, a date or a UTC time such as 2027-01-01T00:00:00Z; by default never")
	f.StringVar(&file, "file", "", "keys file to add the entry to")
	return cmd
}

func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if duration, durationErr := time.ParseDuration(text); durationErr == nil {
		at, err = now.Add(duration).Truncate(time.Second), nil
	}
	switch {
	case err != nil:
		return at, fmt.Errorf("--expires %q must be a duration such as 720h, a date such as 2027-01-01 or a time such as 2027-01-01T00:00:00Z", text)
	case !at.After(now):
		return at, fmt.Errorf("--expires %s must be in the future", text)
	}
	return at.UTC(), nil
}

func newKeyList(std streams) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the keys in the keys file",
		Example: "  trafficctl key list --file keys.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			entries, err := keyfile.Read(file)
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tPRODUCT INSTANCE\tRIGHTS\tTIME ZONE\tREQUESTS/S\tITEMS/S\tEXPIRES\tSHA-256")
			for _, e := range entries {
				expires := "never"
				if !e.Expires.IsZero() {
					expires = e.Expires.UTC().Format(time.RFC3339)
					if !e.Expires.After(time.Now()) {
						expires += " (expired)"
					}
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.12s…\n", e.Name, e.ProductInstance, strings.Join(e.Rights, ","),
					e.Timezone, rate(e.RequestsPerSecond), rate(e.ItemsPerSecond), expires, e.SHA256)
			}
			return table.Flush()
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "keys file (required)")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "-"
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64)
}

func newKeyRevoke(std streams) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Remove a key from the keys file",
		Long: `Remove a key's entry from the keys file, atomically. A running daemon rejects the key
once it has reloaded the file.`,
		Example: "  trafficctl key revoke acme --file keys.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := keyfile.Revoke(file, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(std.err, "trafficctl: removed key %q from %s\n", args[0], file)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "keys file (required)")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}
