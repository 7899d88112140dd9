package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

type dump struct {
	from, to    uint64
	batch       string
	detector    string
	instance    string
	frames      bool
	skipDamaged bool

	rows     batch.Batch
	response batch.Response

	written, read int // lines and frames
}

// origin describes the batch that a measurement or frame belongs to.
type origin struct {
	BatchID         string    `json:"batchId"`
	ReceivedAt      time.Time `json:"receivedAt"`
	ProductInstance string    `json:"productInstance"`
}

// dumpedItem is a measurement in a dump, in the format that resubmit accepts.
type dumpedItem struct {
	Item  pipeline.DeadLetterItem `json:"item"`
	Index uint32                  `json:"index"`
	origin
}

// dumpedFrame is a frame in a dump with --frames.
type dumpedFrame struct {
	Seq uint64 `json:"seq"`
	origin
	Rows           int  `json:"rows"`
	Rejected       int  `json:"rejected"`
	IdempotencyKey bool `json:"idempotencyKey"`
	Bytes          int  `json:"bytes"`
}

func newJournalDump(std streams) *cobra.Command {
	var d dump
	cmd := journalCommand(&cobra.Command{
		Use:   "dump [DIR]",
		Short: "Print the measurements as NDJSON",
		Long: `Print the accepted measurements in the journal, each as one line of JSON:

  {"item":{"detectorCode":…},"index":0,"batchId":"…","receivedAt":"…","productInstance":"…"}

trafficctl resubmit accepts this format. --frames prints a line per frame instead:

  {"seq":1,"batchId":"…","receivedAt":"…","productInstance":"…","rows":14000,"rejected":0,"idempotencyKey":true,"bytes":430112}

Rejected items are counted only for requests with an Idempotency-Key.

While a daemon is using DIR, stop the daemon or dump a copy of DIR. The dump stops at a damaged frame unless --skip-damaged is set.
Exit codes: 0 everything was read, 1 damage or failure.`,
		Example: `  trafficctl journal dump trafficd-data/journal --frames | tail
  trafficctl journal dump trafficd-data/journal --detector 158324 | jq -c .item
  trafficctl journal dump trafficd-data/journal --from 160 --product-instance north > north.ndjson
  trafficctl resubmit north.ndjson --key-file north.key`,
	}, func(ctx context.Context, _ string, f inspect.Journal) error { return d.run(ctx, std, f) })
	f := cmd.Flags()
	f.Uint64Var(&d.from, "from", 0, "first frame")
	f.Uint64Var(&d.to, "to", 0, "last frame; 0 for no limit")
	f.StringVar(&d.batch, "batch", "", "only the batch with this Batch-Id")
	f.StringVar(&d.detector, "detector", "", "only measurements of this detector; with --frames, only frames that contain it")
	f.StringVar(&d.instance, "product-instance", "", "only measurements of this product instance; resubmit needs a key of the same instance")
	f.BoolVar(&d.frames, "frames", false, "print a line per frame instead of its measurements")
	f.BoolVar(&d.skipDamaged, "skip-damaged", false, "continue after frames that cannot be read")
	return cmd
}

func (d *dump) run(ctx context.Context, std streams, f inspect.Journal) (err error) {
	if d.to != 0 && d.to < d.from {
		return fmt.Errorf("--to %d must not be less than --from %d", d.to, d.from)
	}
	if d.batch != "" {
		id, err := uuid.Parse(d.batch)
		if err != nil {
			return fmt.Errorf("--batch %q must be a Batch-Id such as 0198f3a2-7c1e-7000-8000-0123456789ab: %w", d.batch, err)
		}
		d.batch = id.String()
	}
	if err := requireStopped(f); err != nil {
		return err
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	defer func() {
		if flushErr := out.Flush(); flushErr != nil && err == nil {
			err = fmt.Errorf("cannot write the dump: %w", flushErr)
		}
		noun := "measurement"
		if d.frames {
			noun = "line"
		}
		fmt.Fprintf(std.err, "trafficctl: wrote %s from %s\n", plural(d.written, noun), plural(d.read, "frame"))
	}()
	gaps := 0
	for frame, err := range f.Frames(d.from, cmp.Or(d.to, inspect.NoEnd)) {
		_, isGap := errors.AsType[*inspect.Gap](err)
		switch {
		case ctx.Err() != nil:
			return interrupt.Error(ctx)
		case err == nil:
			if err := d.frame(frame, lines); err != nil {
				return err
			}
		case !isGap:
			return err
		case !d.skipDamaged:
			return fmt.Errorf("%w; --skip-damaged continues with the next intact frame", err)
		default:
			gaps++
			fmt.Fprintln(std.err, "trafficctl:", err)
		}
	}
	if gaps > 0 {
		return fmt.Errorf("skipped %s of unreadable frames", plural(gaps, "gap"))
	}
	return nil
}

// requireStopped returns an error if a daemon is using the journal's directory.
func requireStopped(f inspect.Journal) error {
	if directory, ok := f.(*inspect.Directory); ok {
		return directory.Live()
	}
	return nil
}

func (d *dump) frame(frame durable.Frame, lines *json.Encoder) error {
	b := &d.rows
	if err := batch.DecodeFrame(frame.Data, b, &d.response); err != nil {
		return fmt.Errorf("cannot decode frame %d (%s, offset %d), although its checksum is correct: %w; "+
			"check that trafficctl and the daemon have the same version", frame.Seq, frame.Segment, frame.Offset, err)
	}
	d.read++
	from := origin{b.ID.String(), time.Unix(0, b.ReceivedAt).UTC(), b.ProductInstance}
	if d.batch != "" && from.BatchID != d.batch || d.instance != "" && from.ProductInstance != d.instance {
		return nil
	}
	write := func(line any) error {
		d.written++
		if err := lines.Encode(line); err != nil {
			return fmt.Errorf("cannot write the dump: %w", err)
		}
		return nil
	}
	whole := dumpedFrame{frame.Seq, from, b.Rows(), d.response.Len(), d.response.Key != "", len(frame.Data)}
	if d.frames && d.detector == "" { // print frames without rows too
		return write(whole)
	}
	for row := range b.Rows() {
		if d.detector != "" && string(b.Code(row)) != d.detector {
			continue
		}
		if d.frames {
			return write(whole)
		}
		if err := write(dumpedItem{pipeline.ItemOf(b, row), b.Index[row], from}); err != nil {
			return err
		}
	}
	return nil
}
