package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/keyfile"
)

func newKey(std streams) *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Make API keys"}
	cmd.AddCommand(newKeyNew(std))
	return cmd
}

func newKeyNew(std streams) *cobra.Command {
	var e keyfile.Entry
	var file string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make an API key and its entry in the daemon's keys file",
		Long: `Makes a random key and prints it on the first line of standard output. This is the
only time that it is seen: the daemon's keys file holds its SHA-256 digest.

With --file the entry is added to that file, atomically; the daemon takes it up
without a restart. Comments in the file are kept. Without --file the entry is
printed below the key, to be pasted under keys:.

Rights: ingest, forecast, routing, admin. --timezone is that of the client: the
forecast layer names it. A rate of 0 sets no limit.`,
		Example: `  trafficctl key new --name acme --product-instance north --rights ingest --file keys.yaml > acme.key
  trafficctl key new --name map --product-instance north --rights forecast --timezone Europe/Copenhagen --requests-per-second 50`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return makeKey(std, e, file) },
	}
	f := cmd.Flags()
	f.StringVar(&e.Name, "name", "", "name of the key in logs and metrics (needed)")
	f.StringVar(&e.ProductInstance, "product-instance", "", "product instance that the key belongs to (needed)")
	f.StringSliceVar(&e.Rights, "rights", nil, "ingest, forecast, routing, admin (needed)")
	f.StringVar(&e.Timezone, "timezone", "UTC", "IANA zone of the client")
	f.Float64Var(&e.RequestsPerSecond, "requests-per-second", 0, "limit of the key")
	f.Float64Var(&e.ItemsPerSecond, "items-per-second", 0, "limit of the key")
	f.StringVar(&file, "file", "", "the daemon's keys file, to which the entry is added")
	return cmd
}

// makeKey prints the key only once its entry is safe.
func makeKey(std streams, e keyfile.Entry, file string) error {
	if err := e.Validate(); err != nil {
		return err
	}
	key := keyfile.NewKey()
	e.SHA256 = keyfile.Digest(key)
	if file == "" {
		_, err := fmt.Fprintf(std.out, "%s\n\n%s", key, e.Text())
		return err
	}
	if err := keyfile.Append(file, e); err != nil {
		return err
	}
	fmt.Fprintf(std.err, "trafficctl: key %q is in %s; the line on standard output is the key itself, it is not shown again\n", e.Name, file)
	_, err := fmt.Fprintln(std.out, key)
	return err
}
