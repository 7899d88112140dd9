package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/keyfile"
	"trafficd/sources/api"
)

func newKey(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "key",
		Short: "Create, list, rename and revoke API keys",
		Long: `Create, list, rename and revoke the API keys in a daemon's keys file. The file contains SHA-256
digests, never keys. A running daemon reloads it when it changes.`,
	}, newKeyNew(std), newKeyList(std), newKeyRename(std), newKeyRevoke(std))
}

func newKeyNew(std streams) *cobra.Command {
	var e api.KeyEntry
	var file, expires, certificate string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create an API key and its entry in the keys file",
		Long: `Generate a random key and print it on the first line of standard output. It is not
shown again: the daemon's keys file contains only its SHA-256 digest.

With --file, the entry is added to that file atomically, and comments in the file are
kept. Without --file, the entry is printed below the key, as an item of the list keys.

Keys with the same --client and product instance share their routing jobs and
Idempotency-Keys. To replace a key, create a new key for the same client, and revoke the
old key once it is no longer used; until then, the alert TrafficdClientSilent reports it.
Without --client, the client is the key's name.

With --certificate, no key is created: the entry is for clients that present a TLS
certificate (api.tls_client_ca). If the file has a client certificate, the entry is for
this one; if it has a CA's, for all certificates of that CA, or with --subject for those
with the subject, also after they were renewed.`,
		Example: `  trafficctl key new --name acme --product-instance north --rights ingest --file keys.yaml > acme.key
  trafficctl key new --name acme-2027 --client acme --product-instance north --rights ingest --file keys.yaml
  trafficctl key new --name trial --product-instance north --rights ingest --expires 720h --file keys.yaml
  trafficctl key new --name map --product-instance north --rights forecast --timezone Europe/Copenhagen --requests-per-second 50
  trafficctl key new --name acme --product-instance north --rights ingest --certificate ca.pem --subject CN=acme,O=Acme --file keys.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := requireFlags(cmd, "name", "product-instance", "rights"); err != nil {
				return err
			}
			if e.Expires, err = parseExpiry(expires, time.Now()); err != nil {
				return err
			}
			var key, accepted string
			if certificate != "" {
				if e.Certificate, accepted, err = keyfile.Certificate(certificate, e.Subject); err != nil {
					return err
				}
			} else {
				key = keyfile.NewKey()
				e.SHA256 = keyfile.Digest(key)
			}
			if err := e.Validate(); err != nil {
				return fmt.Errorf("cannot create the key: %s", flagsOf.Replace(err.Error()))
			}
			switch {
			case certificate != "" && file == "":
				_, err = fmt.Fprint(std.out, keyfile.Text(e))
				return err
			case file == "":
				_, err = fmt.Fprintf(std.out, "%s\n\n%s", key, keyfile.Text(e))
				return err
			}
			if err := keyfile.Append(file, e); err != nil {
				return err
			}
			if certificate != "" {
				fmt.Fprintf(std.err, "trafficctl: added %q to %s; it accepts %s\n", e.Name, file, accepted)
				return nil
			}
			if _, err = fmt.Fprintln(std.out, key); err != nil {
				return fmt.Errorf("cannot print the key; remove it with trafficctl key revoke %q --file %s: %w", e.Name, file, err)
			}
			fmt.Fprintf(std.err, "trafficctl: added key %q to %s; the key is printed to standard output and is not shown again\n",
				e.Name, file)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.Name, "name", "", "name of the key in logs and metrics (required)")
	f.StringVar(&e.Client, "client", "", "client that owns the key's routing jobs and Idempotency-Keys; by default the name")
	f.StringVar(&e.ProductInstance, "product-instance", "", "product instance of the key (required)")
	f.StringSliceVar(&e.Rights, "rights", nil, "comma-separated list of ingest, forecast, routing (required)")
	f.StringVar(&e.Timezone, "timezone", "UTC", "IANA time zone of the client, used in the forecast layer")
	f.Float64Var(&e.RequestsPerSecond, "requests-per-second", 0, "rate limit in requests per second; 0 for no limit")
	f.Float64Var(&e.ItemsPerSecond, "items-per-second", 0, "rate limit in measurements per second; 0 for no limit")
	f.StringVar(&expires, "expires", "", "when the key expires: a duration such as 720h, a date, or a UTC time such as 2027-01-01T00:00:00Z; "+
		"by default never")
	f.StringVar(&certificate, "certificate", "", "PEM file of a client certificate, or of a CA for its certificates, instead of a key")
	f.StringVar(&e.Subject, "subject", "", "with a CA: only certificates with this subject, in the order of RFC 2253, such as CN=acme,O=Acme")
	f.StringVar(&file, "file", "", "keys file to which the entry is added")
	return cmd
}

// flagsOf replaces what errors about an entry of the keys file name by the flags.
var flagsOf = strings.NewReplacer("requests_per_second", "--requests-per-second", "items_per_second", "--items-per-second",
	"subject requires certificate", "--subject requires --certificate",
	"unknown right", "--rights has the unknown right", "unknown time zone", "--timezone is the unknown time zone")

// requireFlags returns an error that names the flags without a value.
func requireFlags(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); strings.Trim(f.Value.String(), "[]") == "" {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("cannot create the key: %s required; see %s --help", strings.Join(missing, ", "), cmd.CommandPath())
}

// parseExpiry parses --expires. It returns the time in RFC 3339, or "" if text is empty.
func parseExpiry(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if date, dateErr := time.Parse(time.DateOnly, text); dateErr == nil {
		at, err = date, nil
	}
	if duration, durationErr := time.ParseDuration(text); durationErr == nil {
		at, err = now.Add(duration).Truncate(time.Second), nil
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("--expires %q must be a duration such as 720h, a date such as 2027-01-01 or a time such as "+
			"2027-01-01T00:00:00Z", text)
	case !at.After(now):
		return "", fmt.Errorf("--expires %s must be in the future", text)
	}
	return at.UTC().Format(time.RFC3339), nil
}

func newKeyList(std streams) *cobra.Command {
	return keysFileCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the keys in the keys file",
		Example: "  trafficctl key list --file keys.yaml",
		Args:    cobra.NoArgs,
	}, func(file string, _ []string) error {
		entries, err := keyfile.Read(file)
		if entries == nil {
			return err
		}
		rate := func(perSecond float64) string {
			if perSecond == 0 {
				return "-"
			}
			return strconv.FormatFloat(perSecond, 'f', -1, 64)
		}
		table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tCLIENT\tPRODUCT INSTANCE\tRIGHTS\tTIME ZONE\tREQUESTS/S\tITEMS/S\tEXPIRES\tSHA-256\tOF")
		for _, e := range entries {
			expires := cmp.Or(e.Expires, "never")
			if at, err := time.Parse(time.RFC3339, e.Expires); err == nil && !at.After(time.Now()) {
				expires += " (expired)"
			}
			of := "key"
			if e.Certificate != "" {
				of = strings.TrimSpace("certificate " + e.Subject)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.12s…\t%s\n", e.Name, cmp.Or(e.Client, e.Name), e.ProductInstance,
				strings.Join(e.Rights, ","), e.Timezone, rate(e.RequestsPerSecond), rate(e.ItemsPerSecond), expires, e.SHA256+e.Certificate, of)
		}
		return errors.Join(table.Flush(), err)
	})
}

func newKeyRename(std streams) *cobra.Command {
	return keysFileCommand(&cobra.Command{
		Use:   "rename NAME TO",
		Short: "Rename a key in the keys file",
		Long: `Rename a key in logs, metrics and pages. The key itself stays the same, so its user
notices nothing: its client, which owns routing jobs and Idempotency-Keys, keeps the old
name. In metrics, the series of the new name begin at 0.`,
		Example: "  trafficctl key rename acme acme-north --file keys.yaml",
		Args:    cobra.ExactArgs(2),
	}, func(file string, args []string) error {
		err := keyfile.Rename(file, args[0], args[1])
		if err == nil {
			fmt.Fprintf(std.err, "trafficctl: renamed key %q to %q in %s\n", args[0], args[1], file)
		}
		return err
	})
}

func newKeyRevoke(std streams) *cobra.Command {
	return keysFileCommand(&cobra.Command{
		Use:   "revoke NAME",
		Short: "Remove a key from the keys file",
		Long: `Remove a key's entry from the keys file, atomically. A running daemon rejects the key
once it has reloaded the file.`,
		Example: "  trafficctl key revoke acme --file keys.yaml",
		Args:    cobra.ExactArgs(1),
	}, func(file string, args []string) error {
		err := keyfile.Revoke(file, args[0])
		if err == nil {
			fmt.Fprintf(std.err, "trafficctl: removed key %q from %s\n", args[0], file)
		}
		return err
	})
}

// keysFileCommand adds the required flag --file to cmd and makes it call run.
func keysFileCommand(cmd *cobra.Command, run func(file string, args []string) error) *cobra.Command {
	file := cmd.Flags().String("file", "", "keys file (required)")
	_ = cmd.MarkFlagRequired("file")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return run(*file, args) }
	return cmd
}
