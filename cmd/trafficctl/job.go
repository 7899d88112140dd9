package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/must"
	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/soap"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

func newJob(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "job",
		Short: "Watch, stop, fetch and delete jobs of the routing service",
		Long: `Manage the jobs of a daemon's routing service, which convert many geometries in
the background. SOAP clients start them with startConvertGeometries, as does
trafficctl geometry --url.

A job belongs to the client whose key started it. Its results can be fetched once. An id
that is unknown, expired or already fetched has the status UNKNOWN.`,
		Example: `  trafficctl job watch D5SRAWTM… --key-file routing.key
  trafficctl job fetch D5SRAWTM… --key-file routing.key > converted.wkt`,
	}, newJobWatch(std), newJobFetch(std),
		newJobEnd(std, "stop", "Stop a job; the results so far can still be fetched", (*soap.Client).Stop),
		newJobEnd(std, "delete", "Delete a job and its results", (*soap.Client).Delete))
}

// newJobCommand adds the connection flags to cmd and makes it call run with a client and its
// argument, a job ID.
func newJobCommand(cmd *cobra.Command, run func(ctx context.Context, client *soap.Client, c *connection, id string) error) *cobra.Command {
	var c connection
	cmd.Use += " ID"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return errors.New("expected one argument: the job ID that startConvertGeometries returned")
		}
		daemon := must.Get(c.client())
		defer daemon.Close()
		return run(cmd.Context(), soap.New(daemon), &c, args[0])
	}
	c.register(cmd.Flags(), client.Routing)
	return cmd
}

func newJobWatch(std streams) *cobra.Command {
	var asJSON bool
	cmd := newJobCommand(&cobra.Command{
		Use:   "watch",
		Short: "Show a job's progress until it ends",
		Long: `Show a job's progress until it ends, and then its final state.

Exit codes: 0 everything converted, 1 unknown or deleted job, 2 some geometries not
converted.`,
		Example: "  trafficctl job watch D5SRAWTM… --key-file routing.key",
	}, func(ctx context.Context, client *soap.Client, c *connection, id string) error {
		display := newProgress(std.err, c.quiet, -1, progressbar.OptionShowCount())
		display.lastLine = time.Time{} // show the first state immediately
		job, err := client.Await(ctx, id, func(job xroute.Job) {
			s := stateOf(job)
			done := int64(s.Successful) + int64(s.Failed)
			if display.bar != nil {
				display.bar.ChangeMax64(done + int64(s.Remaining))
			}
			display.show(done, string(s.Status), s.String())
		})
		display.end()
		must.Do(err)
		printJob(std, job, asJSON)
		return checkResult(job)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the final state as one line of JSON")
	return cmd
}

func newJobEnd(std streams, verb, short string, end func(*soap.Client, context.Context, string) (xroute.Job, error)) *cobra.Command {
	var asJSON bool
	cmd := newJobCommand(&cobra.Command{
		Use:     verb,
		Short:   short,
		Example: "  trafficctl job " + verb + " D5SRAWTM… --key-file routing.key",
	}, func(ctx context.Context, client *soap.Client, _ *connection, id string) error {
		job := must.Get(end(client, ctx, id))
		printJob(std, job, asJSON)
		return checkKnown(job)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the job's state as one line of JSON")
	return cmd
}

func newJobFetch(std streams) *cobra.Command {
	return newJobCommand(&cobra.Command{
		Use:   "fetch",
		Short: "Get a job's results, once",
		Long: `Print a job's converted geometries as WKT, one per line in the order of the request, and
the reasons for failures to standard error. Afterwards, the job is unknown to the
service. The results of a job that has not ended cannot be fetched.

Exit codes: 0 everything converted, 1 nothing to fetch, 2 some geometries not converted.`,
		Example: `  trafficctl job fetch D5SRAWTM… --key-file routing.key > converted.wkt
  trafficctl job fetch D5SRAWTM… --key-file routing.key | trafficctl geometry --to kml --output converted.kml`,
	}, func(ctx context.Context, client *soap.Client, _ *connection, id string) error {
		return printFetched(std, must.Get(client.Fetch(ctx, id)))
	})
}

func printFetched(std streams, results xroute.ConvertedGeometries) error {
	if err := checkResult(results.Job); err != nil && !errors.Is(err, errRejected) {
		return err
	}
	var failed error
	for i, e := range results.Geometries {
		g, err := soap.Decode(e)
		if err != nil { // continue, because the service returns the results only once
			failed = errRejected
			fmt.Fprintf(std.err, "trafficctl: cannot read geometry %d of the response: %v\n", i+1, err)
			continue
		}
		if _, err := std.out.Write(append(geo.AppendWKT(nil, g), '\n')); err != nil {
			return fmt.Errorf("cannot write a geometry: %w", err)
		}
	}
	for _, f := range results.Failures {
		fmt.Fprintf(std.err, "trafficctl: geometry %d of the request: %s\n", f.Index+1, soap.Reason(f.Exception))
	}
	return errors.Join(failed, checkResult(results.Job))
}

// checkKnown returns an error if the job is unknown to the service.
func checkKnown(job xroute.Job) error {
	if job.Status != xroute.StatusUnknown {
		return nil
	}
	return fmt.Errorf("unknown job %s: it has expired, was fetched or deleted, or belongs to another client's key", stateOf(job).ID)
}

// checkResult returns nil if the job converted everything, errRejected if it converted only a part,
// and another error if it has no results.
func checkResult(job xroute.Job) error {
	s := stateOf(job)
	switch {
	case job.Status == xroute.StatusDeleted:
		return fmt.Errorf("job %s was deleted", s.ID)
	case !job.Status.Ended():
		return fmt.Errorf("job %s is %s; wait with trafficctl job watch, or stop it with trafficctl job stop", s.ID, job.Status)
	case job.Status != xroute.StatusUnknown && s.Failed+s.Remaining > 0:
		return errRejected
	}
	return checkKnown(job)
}

// jobState is the JSON form of a job's state. The member names are stable.
type jobState struct {
	ID         string           `json:"id"`
	Status     xroute.JobStatus `json:"status"`
	Elapsed    float64          `json:"elapsed_seconds"`
	Successful int32            `json:"successful"`
	Failed     int32            `json:"failed"`
	Remaining  int32            `json:"remaining"`
}

func stateOf(job xroute.Job) jobState {
	s := jobState{ID: "without an id", Status: job.Status, Elapsed: float64(job.ElapsedTime) / 1000}
	if job.ID != nil {
		s.ID = *job.ID
	}
	if p, ok := job.Progress.(*xroute.BulkProgress); ok {
		s.Successful, s.Failed, s.Remaining = p.Successful, p.Failed, p.Remaining
	}
	return s
}

func (s jobState) String() string {
	return fmt.Sprintf("%s: %s converted, %s failed, %s remaining, %.1f s",
		s.Status, grouped(s.Successful), grouped(s.Failed), grouped(s.Remaining), s.Elapsed)
}

// printJob prints a job's state. In text form, it prints nothing for an unknown job, because the
// command's error reports it.
func printJob(std streams, job xroute.Job, asJSON bool) {
	switch s := stateOf(job); {
	case asJSON:
		_ = json.NewEncoder(std.out).Encode(s)
	case checkKnown(job) == nil:
		fmt.Fprintln(std.out, s.ID, s)
	}
}
