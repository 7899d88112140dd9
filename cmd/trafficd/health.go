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
)

// healthLimit is the time limit of a health check, shorter than usual intervals between checks.
const healthLimit = 5 * time.Second

func healthCommand(f *flags) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Report whether the daemon on this machine is alive or ready, for health checks",
		Long: `health requests /healthz from the daemon's operators' listener (ops.listen) and prints the
response. With --ready it requests /readyz, whose response has the reasons.

It reads the same settings as the daemon, and needs no other program, so containers without
a shell can use it.

Exit codes: 0 alive or ready, 1 otherwise.`,
		Example: `  trafficd health --config /etc/trafficd/trafficd.yaml
  trafficd health --ready --ops-listen 127.0.0.1:8081`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, _ := f.load(cmd) // a running daemon is not affected by invalid settings
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			answer, err := askOps(cmd.Context(), c.Ops.Listen, path)
			fmt.Fprint(cmd.OutOrStdout(), answer)
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "request /readyz instead of /healthz")
	return cmd
}

// askOps requests a path from the operators' listener, even if it listens on all addresses.
func askOps(ctx context.Context, listen, path string) (answer string, err error) {
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
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", fmt.Errorf("cannot request the daemon's health from ops.listen: %w", err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("the daemon does not answer: %w", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	answer = strings.TrimSpace(string(body)) + "\n"
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("the daemon answered %s", r.Status)
	}
	return answer, err
}
