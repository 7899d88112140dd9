package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/schemas/contract"
)

func newBatch(std streams) *cobra.Command {
	var c connection
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "batch ID",
		Short: "Show what became of a batch",
		Long: `Show how many items of a batch the archive and the topic have, and how many they refuse for
good. ID is the header Batch-Id of the response to the batch. The key must belong to the
client that sent the batch, and needs the ingest right.

The state is kept for three days. It is final when each store has or refuses every
accepted item, which takes seconds while the stores are available.

Exit codes: 0 the state was printed and, with --wait, is final; 1 otherwise.`,
		Example: `  trafficctl batch 0193a5c2-7b1e-7c3a-9f00-5d2c1a7be001 --key-file ingest.key
  trafficctl batch 0193a5c2-7b1e-7c3a-9f00-5d2c1a7be001 --key-file ingest.key --wait 1m`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := uuid.Parse(args[0]); err != nil {
				return fmt.Errorf("%q is not a Batch-Id: copy it from the header of the 207", args[0])
			}
			daemon, err := c.client()
			if err != nil {
				return err
			}
			defer daemon.Close()
			deadline := time.Now().Add(wait)
			var s contract.BatchStatus
			for {
				s, err = batchStatus(cmd.Context(), daemon, args[0])
				if err == nil && s.Final || !time.Now().Before(deadline) || permanent(err) {
					break
				}
				pause := time.Second
				if refused, ok := errors.AsType[*client.Error](err); ok {
					pause = max(pause, refused.RetryAfter)
				}
				if client.Sleep(cmd.Context(), min(pause, time.Until(deadline))) != nil {
					return interrupt.Error(cmd.Context())
				}
			}
			if err != nil {
				return err
			}
			printBatch(std, s)
			if wait > 0 && !s.Final {
				return fmt.Errorf("the state of the batch is not final after --wait %s", wait)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "time to wait until the state is final")
	c.register(cmd.Flags(), client.Batches)
	return cmd
}

func batchStatus(ctx context.Context, daemon *client.Client, id string) (s contract.BatchStatus, err error) {
	req, err := daemon.NewRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return s, err
	}
	req.URL = req.URL.JoinPath(id)
	resp, err := daemon.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return s, interrupt.Error(ctx)
	case err != nil:
		return s, fmt.Errorf("cannot get the state of the batch: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, daemon.ReadError(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("cannot read the response: %w", err)
	}
	return s, nil
}

// permanent reports whether waiting cannot help. A batch that is not found may be too recent.
func permanent(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return ok && refused.Status < http.StatusInternalServerError &&
		refused.Status != http.StatusNotFound && refused.Status != http.StatusTooManyRequests
}

func printBatch(std streams, s contract.BatchStatus) {
	state := "not final: a store does not have all items yet"
	if s.Final {
		state = "final"
	}
	fmt.Fprintf(std.out, "%s accepted at %s; %s\n", plural(s.Accepted, "item"), s.ReceivedAt.UTC().Format(time.RFC3339), state)
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STORE\tITEMS\tDEAD LETTERS\tSINCE")
	for _, store := range []struct {
		name string
		*contract.StoreStatus
	}{{"archive", s.Archived}, {"topic", s.Forwarded}} {
		if store.StoreStatus == nil {
			continue
		}
		at := ""
		if store.At != nil {
			at = store.At.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", store.name, grouped(store.Items), grouped(store.DeadLettered), at)
	}
	_ = table.Flush() // errors are those of std.out, which run reports
}
