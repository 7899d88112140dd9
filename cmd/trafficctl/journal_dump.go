package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// dump holds the flags of journal dump and its buffers.
type dump struct {
	from, to    uint64
	batch       string
	detector    string
	instance    string
	frames      bool
	skipDamaged bool

	id     batch.ID
	rows   batch.Batch
	answer batch.Answer
	line   []byte
	fields measurement.Fields

	written, read, gaps int
}

func newJournalDump(std streams) *cobra.Command {
	var d dump
	cmd := journalCommand(func(ctx context.Context, _ string, f *inspect.Folder) error { return d.run(ctx, std, f) }, &cobra.Command{
		Use:   "dump DIR",
		Short: "Print the measurements as NDJSON",
		Long: `Print the accepted measurements of the journal, one line of JSON each:

  {"item":{"detectorCode":…},"index":0,"batchId":"…","receivedAt":"…","productInstance":"…"}

trafficctl resubmit accepts this format. --frames prints a line per frame instead:

  {"seq":1,"batchId":"…","receivedAt":"…","productInstance":"…","rows":14000,"rejected":0,"idempotencyKey":true,"bytes":430112}

Rejected items are counted only for requests with an Idempotency-Key.

The dump stops at a damaged frame unless --skip-damaged is set.
Exit codes: 0 everything was read, 1 damage or failure.`,
		Example: `  trafficctl journal dump trafficd-data/journal --frames | tail
  trafficctl journal dump trafficd-data/journal --detector 158324 | jq -c .item
  trafficctl journal dump trafficd-data/journal --from 160 --product-instance north > north.ndjson
  trafficctl resubmit north.ndjson --key-file north.key`,
	})
	f := cmd.Flags()
	f.Uint64Var(&d.from, "from", 0, "first frame")
	f.Uint64Var(&d.to, "to", 0, "last frame; 0 for no limit")
	f.StringVar(&d.batch, "batch", "", "only the batch with this Batch-Id")
	f.StringVar(&d.detector, "detector", "", "only measurements of this detector; with --frames, only frames that contain it")
	f.StringVar(&d.instance, "product-instance", "", "only measurements of this product instance; the key for a resubmit belongs to one")
	f.BoolVar(&d.frames, "frames", false, "print a line per frame instead of its measurements")
	f.BoolVar(&d.skipDamaged, "skip-damaged", false, "continue after frames that cannot be read")
	return cmd
}

func (d *dump) run(ctx context.Context, std streams, f *inspect.Folder) error {
	if d.to != 0 && d.to < d.from {
		return fmt.Errorf("--to %d must not be before --from %d", d.to, d.from)
	}
	if d.batch != "" {
		id, err := uuid.Parse(d.batch)
		if err != nil {
			return fmt.Errorf("--batch %q must be a Batch-Id such as 0198f3a2-7c1e-7000-8000-0123456789ab: %w", d.batch, err)
		}
		d.id = batch.ID(id)
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	err := d.each(ctx, f, out, std.err)
	if flushed := out.Flush(); flushed != nil && err == nil {
		err = fmt.Errorf("cannot write the dump: %w", flushed)
	}
	noun := "measurement"
	if d.frames {
		noun = "line"
	}
	fmt.Fprintf(std.err, "trafficctl: %s from %s read\n", counted(d.written, noun), counted(d.read, "frame"))
	return err
}

func (d *dump) each(ctx context.Context, f *inspect.Folder, out, notes io.Writer) error {
	for frame, err := range f.Frames(d.from) {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted (%w)", context.Cause(ctx))
		}
		seq := frame.Seq
		var gap *inspect.Gap
		if errors.As(err, &gap) {
			seq = gap.From
		}
		switch {
		case d.to != 0 && seq > d.to:
		case err == nil:
			if err := d.frame(frame, out); err != nil {
				return err
			}
			continue
		case gap == nil:
			return err
		case !d.skipDamaged:
			return fmt.Errorf("%w; --skip-damaged continues with the next intact frame", err)
		default:
			d.gaps++
			fmt.Fprintln(notes, "trafficctl:", err)
			continue
		}
		break
	}
	if d.gaps > 0 {
		return fmt.Errorf("%s could not be read", counted(d.gaps, "run")+" of frames")
	}
	return nil
}

func (d *dump) frame(frame journal.Frame, out io.Writer) error {
	if err := batch.DecodeFrame(frame.Data, &d.rows, &d.answer); err != nil {
		return fmt.Errorf("cannot decode frame %d (%s, offset %d), although its checksum is correct: %w; check the version of the daemon", frame.Seq, frame.Segment, frame.Offset, err)
	}
	d.read++
	if d.batch != "" && d.rows.ID != d.id || d.instance != "" && d.rows.ProductInstance != d.instance {
		return nil
	}
	d.line = d.line[:0]
	if d.frames {
		d.appendFrame(frame)
	} else {
		for row := range d.rows.Rows() {
			if d.detector == "" || string(d.rows.Code(row)) == d.detector {
				d.appendRow(row)
				d.written++
			}
		}
	}
	if _, err := out.Write(d.line); err != nil {
		return fmt.Errorf("cannot write the dump: %w", err)
	}
	return nil
}

func (d *dump) appendFrame(frame journal.Frame) {
	b := &d.rows
	if d.detector != "" {
		row := 0
		for row < b.Rows() && string(b.Code(row)) != d.detector {
			row++
		}
		if row == b.Rows() {
			return
		}
	}
	const line = `{"seq":%d,"batchId":"%s","receivedAt":"%s","productInstance":%s,` +
		`"rows":%d,"rejected":%d,"idempotencyKey":%t,"bytes":%d}` + "\n"
	d.line = fmt.Appendf(d.line, line, frame.Seq, b.ID,
		measurement.AppendTime(nil, time.Unix(0, b.ReceivedAt)), measurement.AppendString(nil, b.ProductInstance),
		b.Rows(), d.answer.Len(), d.answer.Key != "", len(frame.Data))
	d.written++
}

// appendRow appends a measurement in the format of resubmit.
func (d *dump) appendRow(row int) {
	b, m := &d.rows, &d.fields
	m.Detector, m.Type = string(b.Code(row)), string(b.TypeCode(int(b.Type[row])))
	m.From = measurement.AppendTime(m.From[:0], time.Unix(0, b.From[row]))
	m.To = measurement.AppendTime(m.To[:0], time.Unix(0, b.To[row]))
	m.Value = strconv.AppendFloat(m.Value[:0], b.Value[row], 'g', -1, 64)
	m.Quality = m.Quality[:0]
	if b.HasQuality(row) {
		m.Quality = strconv.AppendFloat(m.Quality, b.Quality[row], 'g', -1, 64)
	}
	d.line = m.AppendJSON(append(d.line, `{"item":`...))
	d.line = fmt.Appendf(d.line, `,"index":%d,"batchId":"%s","receivedAt":"%s","productInstance":%s}`+"\n", b.Index[row], b.ID,
		measurement.AppendTime(nil, time.Unix(0, b.ReceivedAt)), measurement.AppendString(nil, b.ProductInstance))
}
