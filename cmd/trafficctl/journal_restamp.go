package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

func newJournalRestamp(std streams) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "restamp DIR",
		Short: "Correct the frames that a wrong clock has stamped",
		Long: `Correct the received_at of the frames in DIR that is more than a minute ahead of this
machine's clock. The newest frame gets the current time, and the others keep their distance
to it as far as received_at still increases from frame to frame. Nothing else changes: each
store still receives each measurement exactly once.

A daemon rejects all batches while its newest frame is ahead of the clock. First correct the
clock (compare the output of date), then stop the daemon. Run the command as the daemon's user.
It needs space on the disk for a copy of one segment. If it is interrupted or killed, run it
again.

ClickHouse recognises the rows of a block in flight by their received_at. If there is such a
block, the command changes nothing: start the daemon, which delivers even while it rejects
batches, wait until the block is delivered, stop the daemon, and run the command again.

Rows that ClickHouse already has keep their received_at; the runbook says how to correct them
(TrafficdClockWrong). A journal in Kafka needs no correction: its readers set received_at.

Exit codes: 0 no frame is ahead of the clock any more, 1 nothing or not everything was corrected.`,
		Example: `  runuser -u trafficd -- trafficctl journal restamp /var/lib/trafficd/journal`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return restamp(cmd.Context(), std, args[0], quiet)
		},
	}
	cmd.Flags().BoolVar(&quiet, "quiet", false, "do not print progress")
	return cmd
}

// ahead describes the frames of a journal whose received_at is ahead of the clock.
type ahead struct {
	first, last uint64 // frame numbers
	before      int64  // received_at of the frame before first
	newest      int64  // received_at of frame last
}

func restamp(ctx context.Context, std streams, dir string, quiet bool) (err error) {
	f, err := inspect.Open(dir) // a directory that is no journal must not get a lock file
	if err != nil {
		return err
	}
	f.Close()
	if err := checkOwner(dir); err != nil {
		return err
	}
	lock, err := journal.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	f, err = inspect.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	now := time.Now()
	display, add := newByteProgress(std.err, "read", f.Bytes(false), quiet)
	f.OnRead(add)
	a, err := interrupt.Call(ctx, func() (ahead, error) { return findAhead(f, now.Add(pipeline.ClockTolerance).UnixNano()) })
	display.end()
	if err != nil {
		return err
	}
	if a.first == 0 {
		fmt.Fprintf(std.out, "no frame in %s is ahead of the clock, which says %s\n", dir, timestamp(now))
		return nil
	}
	consumers, gaps, err := f.Consumers()
	if err != nil {
		return err
	}
	if len(gaps) > 0 || slices.ContainsFunc(consumers, func(c inspect.Consumer) bool { return c.Err != nil }) {
		return fmt.Errorf("cannot restamp %[1]s: it is damaged; run trafficctl journal verify %[1]s to see what to do", dir)
	}
	for _, c := range consumers {
		if c.Name == "clickhouse" && c.Done.Frame <= a.last && (c.Plan != nil || c.State != nil) {
			return fmt.Errorf("cannot restamp %s: ClickHouse may have some rows of a block in flight, which it recognises by received_at; "+
				"start the daemon, which delivers even while it rejects batches, wait until the block is delivered, stop the daemon and try again", dir)
		}
	}
	at, shift := a.before, a.newest-now.UnixNano()
	var from, to int64
	err = journal.Edit(dir, a.first, func(seq uint64, data []byte) {
		at = max(at+1, batch.FrameReceivedAt(data)-shift)
		batch.StampFrame(data, at)
		if seq == a.first {
			from = at
		}
		to = at
	})
	if err != nil {
		return fmt.Errorf("cannot restamp %s: %w", dir, err)
	}
	fmt.Fprintf(std.out, "restamped frames %d to %d: received_at is now %s to %s, the newest was %s\n", a.first, a.last,
		timestamp(time.Unix(0, from)), timestamp(time.Unix(0, to)), timestamp(time.Unix(0, a.newest)))
	for _, c := range consumers {
		if c.Name != pipeline.IdempotencyConsumer && (batch.Position{Frame: a.first}).Before(c.Done) {
			fmt.Fprintf(std.out, "%s has the measurements before %s with their old received_at; see the runbook, TrafficdClockWrong\n",
				c.Name, position(c.Done))
		}
	}
	return nil
}

// checkOwner returns an error if the journal's files belong to another user, who could not read the
// files that replace them.
func checkOwner(dir string) error {
	segments, _ := filepath.Glob(filepath.Join(dir, "*.seg")) // fails only if dir contains a malformed pattern
	for _, path := range segments {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
			return fmt.Errorf("cannot restamp %s: %s belongs to user %d, but this is user %d; run the command as the daemon's user",
				dir, filepath.Base(path), s.Uid, os.Geteuid())
		}
	}
	return nil
}

// findAhead returns the frames that were received after a time. first is 0 if there are none.
func findAhead(f *inspect.Directory, after int64) (a ahead, err error) {
	for frame, err := range f.Frames(0, inspect.NoEnd) {
		if err != nil {
			return a, fmt.Errorf("%w; run trafficctl journal verify to see what to do", err)
		}
		at := batch.FrameReceivedAt(frame.Data)
		switch {
		case a.first == 0 && at <= after:
			a.before = at
			continue
		case a.first == 0:
			a.first = frame.Seq
		}
		a.last, a.newest = frame.Seq, at
	}
	return a, nil
}
