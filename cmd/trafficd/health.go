package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
)

// healthTimeout is shorter than the usual interval between health checks.
const healthTimeout = 5 * time.Second

func healthCommand(f *flags) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Report whether the daemon on this machine is alive or ready, for health checks",
		Long: `health requests /healthz from the daemon's operators' listener (ops.listen) and prints the
response. With --ready, it requests /readyz, whose response says why the daemon is not
ready.

It reads the same settings as the daemon. Containers without a shell can use it, because
it needs no other program.

Exit codes: 0 alive or ready, 1 otherwise.`,
		Example: `  trafficd health --config /etc/trafficd/trafficd.yaml
  trafficd health --ready --ops-listen 127.0.0.1:8081`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, invalid := f.load(cmd)
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			text, err := getOps(cmd.Context(), c.Ops.Listen, path)
			fmt.Fprint(cmd.OutOrStdout(), text)
			if err != nil && invalid != nil { // a running daemon is not affected by invalid settings
				return errors.Join(err, conf.Invalid(invalid))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "request /readyz instead of /healthz")
	return cmd
}

// getOps requests path from the operators' listener. listen is its address, which may be a wildcard
// address. getOps returns the response body for any status, and an error unless the status is 200.
func getOps(ctx context.Context, listen, path string) (text string, err error) {
	if listen == "" {
		return "", errors.New("cannot request the daemon's health: ops.listen is empty, so there is no operators' listener")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("cannot request the daemon's health from ops.listen: %w", err)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1" // not localhost, which an image without /etc/hosts cannot resolve
	case "::":
		host = "::1"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", fmt.Errorf("cannot request the daemon's health from ops.listen: %w", err)
	}
	r, err := (&http.Transport{}).RoundTrip(req) // without a proxy
	if err != nil {
		return "", fmt.Errorf("cannot reach the daemon: %w", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("the daemon responded with %s", r.Status)
	}
	return strings.TrimSpace(string(body)) + "\n", err
}
