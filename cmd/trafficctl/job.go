package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"trafficd/cmd/trafficctl/internal/soap"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

func newJob(std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Watch, stop, fetch and delete jobs of the routing service",
		Long: `Works on the jobs of a daemon's routing service: conversions of many geometries that
go on after the answer. They are started with startConvertGeometries, by any SOAP
client or by trafficctl geometry --url.

A job belongs to its key's client. What it has made is given out once; an id that is
unknown, expired or already fetched has the status UNKNOWN.`,
		Example: `  trafficctl job watch D5SRAWTM… --key-file routing.key
  trafficctl job fetch D5SRAWTM… --key-file routing.key > converted.wkt`,
	}
	cmd.AddCommand(newJobWatch(std), newJobFetch(std),
		newJobEnd(std, "stop", "End a job early; what is done can be fetched", (*soap.Client).Stop),
		newJobEnd(std, "delete", "Forget a job and what it has made", (*soap.Client).Delete))
	return cmd
}

func oneJob(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("write the id of one job, as startConvertGeometries has given it")
	}
	return nil
}

// calling holds the flags of all commands that call the routing service.
type calling struct {
	*sending
	asJSON bool
}

func newCalling() *calling { return &calling{sending: newSending()} }

func (c *calling) register(f *pflag.FlagSet) {
	f.StringVar(&c.cfg.URL, "url", c.cfg.URL, "base URL of the daemon (or environment "+envURL+")")
	c.registerKey(f)
	f.BoolVar(&c.quiet, "quiet", false, "nothing on standard error but failures")
}

func (c *calling) registerKey(f *pflag.FlagSet) {
	f.StringVar(&c.cfg.Key, "key", "", "API key with the right routing; other users of this machine can see it: better --key-file or "+envKey)
	f.StringVar(&c.keyFile, "key-file", "", "file whose first line is the API key")
	f.DurationVar(&c.cfg.Timeout, "timeout", c.cfg.Timeout, "for one call of the daemon and its answer")
}

func (c *calling) client(f *pflag.FlagSet) (*soap.Client, error) {
	cfg, err := c.config(f)
	if err != nil {
		return nil, err
	}
	return c.clientOf(cfg.URL)
}

func (c *calling) clientOf(url string) (*soap.Client, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if key == "" && c.keyFile != "" {
		return nil, fmt.Errorf("the first line of --key-file %s is empty: it has to be the API key", c.keyFile)
	}
	return soap.New(soap.Config{URL: url, Key: key, Timeout: c.cfg.Timeout})
}

func newJobWatch(std streams) *cobra.Command {
	c := newCalling()
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Show how far a job is until it ends",
		Long: `Shows how far a job is until it ends, and then its last state.

Exit codes: 0 all of it is converted, 2 some of it is not, 1 the job is not known or was
deleted.`,
		Example: "  trafficctl job watch D5SRAWTM… --key-file routing.key",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client(cmd.Flags())
			if err != nil {
				return err
			}
			defer client.Close()
			job, err := await(cmd.Context(), client, std.err, args[0], c.quiet)
			if err != nil {
				return err
			}
			c.show(std.out, job)
			return jobVerdict(job)
		},
	}
	c.register(cmd.Flags())
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print the last state as one line of JSON")
	return cmd
}

// newJobEnd makes the commands that tell a job to end.
func newJobEnd(std streams, verb, short string, end func(*soap.Client, context.Context, string) (xroute.Job, error)) *cobra.Command {
	c := newCalling()
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  trafficctl job " + verb + " D5SRAWTM… --key-file routing.key",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client(cmd.Flags())
			if err != nil {
				return err
			}
			defer client.Close()
			job, err := end(client, cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c.show(std.out, job)
			return known(job)
		},
	}
	c.register(cmd.Flags())
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print the job's state as one line of JSON")
	return cmd
}

// known gives the error of a job that the service does not know.
func known(job xroute.Job) error {
	if job.Status != xroute.StatusUnknown {
		return nil
	}
	return fmt.Errorf("the job %s is not known: it has expired, was fetched or deleted, or was started with the key of another client", jobID(job))
}

// jobVerdict is errRejected where not all was converted.
func jobVerdict(job xroute.Job) error {
	if err := fetchable(job); err != nil {
		return err
	}
	if s := shownOf(job); s.Failed+s.Remaining > 0 {
		return errRejected
	}
	return nil
}

func jobID(job xroute.Job) string {
	if job.ID == nil {
		return "without an id"
	}
	return *job.ID
}

// shownJob is a job's state in JSON; its member names do not change.
type shownJob struct {
	ID         string           `json:"id"`
	Status     xroute.JobStatus `json:"status"`
	Elapsed    float64          `json:"elapsed_seconds"`
	Successful int32            `json:"successful"`
	Failed     int32            `json:"failed"`
	Remaining  int32            `json:"remaining"`
}

func shownOf(job xroute.Job) shownJob {
	s := shownJob{ID: jobID(job), Status: job.Status, Elapsed: float64(job.ElapsedTime) / 1000}
	if p, ok := job.Progress.(*xroute.BulkProgress); ok {
		s.Successful, s.Failed, s.Remaining = p.Successful, p.Failed, p.Remaining
	}
	return s
}

// show prints a state; that a job is not known is left to the error.
func (c *calling) show(w io.Writer, job xroute.Job) {
	s := shownOf(job)
	switch {
	case c.asJSON:
		_ = json.NewEncoder(w).Encode(s)
	case known(job) == nil:
		fmt.Fprintln(w, s.ID, s)
	}
}

// String tells the state in a line.
func (s shownJob) String() string {
	return fmt.Sprintf("%s: %s converted, %s failed, %s to go, %.1f s",
		s.Status, grouped(int64(s.Successful)), grouped(int64(s.Failed)), grouped(int64(s.Remaining)), s.Elapsed)
}

// await waits for a job's end and shows its progress meanwhile: a bar on a
// terminal, now and then a line elsewhere.
func await(ctx context.Context, client *soap.Client, w io.Writer, id string, quiet bool) (xroute.Job, error) {
	show, end := func(shownJob) {}, func() {}
	if f, ok := w.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		show, end = jobBar(w)
	} else if !quiet {
		show = jobLines(w)
	}
	defer end()
	return client.Await(ctx, id, func(job xroute.Job) { show(shownOf(job)) })
}

func jobBar(w io.Writer) (show func(shownJob), end func()) {
	bar := progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(24),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
	)
	return func(s shownJob) {
		bar.Describe(string(s.Status))
		bar.ChangeMax64(int64(s.Successful) + int64(s.Failed) + int64(s.Remaining))
		bar.Set64(int64(s.Successful) + int64(s.Failed))
	}, func() { bar.Finish() }
}

func jobLines(w io.Writer) (show func(shownJob)) {
	var shown time.Time
	return func(s shownJob) {
		if time.Since(shown) >= lineEvery {
			shown = time.Now()
			fmt.Fprintln(w, "trafficctl:", s)
		}
	}
}

func newJobFetch(std streams) *cobra.Command {
	c := newCalling()
	cmd := &cobra.Command{
		Use:   "fetch ID",
		Short: "Get what a job has made, once",
		Long: `Prints the geometries that a job has converted as WKT, one a line in the order of its
request, and on standard error why others could not be converted. Afterwards the
service does not know the job any more. Before the job's end nothing is fetched.

Exit codes: 0 all of it was converted, 2 some of it was not, 1 there is nothing to fetch.`,
		Example: `  trafficctl job fetch D5SRAWTM… --key-file routing.key > converted.wkt
  trafficctl job fetch D5SRAWTM… --key-file routing.key | trafficctl geometry --to kml --output converted.kml`,
		Args: oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client(cmd.Flags())
			if err != nil {
				return err
			}
			defer client.Close()
			made, err := client.Fetch(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printFetched(std, made)
		},
	}
	c.register(cmd.Flags())
	return cmd
}

func printFetched(std streams, made xroute.ConvertedGeometries) error {
	if err := fetchable(made.Job); err != nil {
		return err
	}
	limits := geo.Limits{Points: math.MaxInt, Depth: maxFetchedDepth} // the answer was bounded before
	var unread error
	for i, e := range made.Geometries {
		g, err := soap.Decode(e, limits)
		if err != nil { // the others are not given out again
			unread = errRejected
			fmt.Fprintf(std.err, "trafficctl: cannot read geometry %d of the answer: %v\n", i+1, err)
			continue
		}
		if _, err := std.out.Write(append(geo.AppendWKT(nil, g), '\n')); err != nil {
			return fmt.Errorf("cannot write a geometry: %w", err)
		}
	}
	for _, f := range made.Failures {
		fmt.Fprintf(std.err, "trafficctl: geometry %d of the request: %s\n", f.Index+1, soap.Reason(f.Exception))
	}
	return errors.Join(unread, jobVerdict(made.Job))
}

const maxFetchedDepth = 1000 // the most that the service can be set to

// fetchable tells why there is nothing to fetch.
func fetchable(job xroute.Job) error {
	switch {
	case job.Status == xroute.StatusDeleted:
		return fmt.Errorf("the job %s was deleted", jobID(job))
	case !soap.Ended(job.Status):
		return fmt.Errorf("the job %s is %s: wait for its end with trafficctl job watch, or end it with trafficctl job stop", jobID(job), job.Status)
	}
	return known(job)
}
