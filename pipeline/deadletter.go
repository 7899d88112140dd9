package pipeline

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/replace"
)

// DeadLetters is the file of measurements that a sink has permanently rejected, and of records of
// the log in Kafka that its delivery has skipped, one JSON object per line. A line is durable
// before the delivery continues; a crash may duplicate it, not lose it.
type DeadLetters struct {
	mu   sync.Mutex // held while writing
	path string

	counting sync.Mutex     // guards the rest
	counted  fs.FileInfo    // the file that rows refers to, nil if there is none
	read     int64          // bytes of it that have been counted
	rows     map[string]int // by sink
	records  map[string]int // by sink
}

// DeadLetter is a line of the dead-letter file.
type DeadLetter struct {
	Sink            string         `json:"sink"`
	Reason          string         `json:"reason"` // the store's error, at most about maxReason bytes
	At              time.Time      `json:"at"`     // when the line was written
	ProductInstance string         `json:"productInstance"`
	BatchID         string         `json:"batchId"`
	Index           uint32         `json:"index"`
	ReceivedAt      time.Time      `json:"receivedAt"`
	Item            DeadLetterItem `json:"item"`

	Record *DeadLetterRecord `json:"record,omitempty"` // if set, the line has only this, the sink, reason and time
}

// DeadLetterRecord is a record of the log in Kafka that is not an intact frame.
type DeadLetterRecord struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     []byte `json:"value"` // in base64
}

// maxReason is the maximum length of a reason: ClickHouse repeats the expression of a violated
// constraint, which may list thousands of codes, in the error of every row.
const maxReason = 4 << 10

// DeadLetterItem is the rejected measurement.
type DeadLetterItem struct {
	DetectorCode    string    `json:"detectorCode"`
	MeasureTypeCode string    `json:"measureTypeCode"`
	TimestampFrom   time.Time `json:"timestampFrom"`
	TimestampTo     time.Time `json:"timestampTo"`
	Value           float64   `json:"value"`
	Quality         *float64  `json:"quality,omitempty"`
}

// NewDeadLetters returns the dead-letter file at path. Add creates the file if it does not exist.
func NewDeadLetters(path string) *DeadLetters { return &DeadLetters{path: path} }

// Check returns an error if Add could not write the file. Check writes nothing, because the disk
// may be full.
func (d *DeadLetters) Check() error {
	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_APPEND, 0)
	switch {
	case err == nil:
		err = f.Close()
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(d.path)
		if err = unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			err = &fs.PathError{Op: "write to", Path: dir, Err: err}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write the dead-letter file: %w", err)
	}
	return nil
}

// Add appends rows and syncs the file. It is safe for concurrent use.
func (d *DeadLetters) Add(sink string, rejected ...batch.RejectedRows) error {
	var lines []byte
	n := 0
	for _, r := range rejected {
		text := r.Reason.Error()
		if len(text) > maxReason {
			text = strings.ToValidUTF8(text[:maxReason], "") + "…"
		}
		for _, s := range r.Rows {
			for row := s.From; row < s.To; row++ {
				l := DeadLetter{
					Sink: sink, Reason: text, At: time.Now().UTC(), ProductInstance: s.ProductInstance, BatchID: s.ID.String(),
					Index: s.Index[row], ReceivedAt: time.Unix(0, s.ReceivedAt).UTC(), Item: ItemOf(s.Batch, row),
				}
				line, err := json.Marshal(l)
				if err != nil {
					return fmt.Errorf("cannot encode a dead letter: %w", err)
				}
				lines = append(append(lines, line...), '\n')
			}
		}
		n += r.Rows.Rows()
	}
	if err := d.write(lines); err != nil {
		return err
	}
	deadLetters.WithLabelValues(sink).Add(float64(n))
	return nil
}

// AddRecord appends a record of the log and syncs the file. It is safe for concurrent use.
func (d *DeadLetters) AddRecord(sink string, r *durable.RecordError) error {
	line, err := json.Marshal(struct {
		Sink   string           `json:"sink"`
		Reason string           `json:"reason"`
		At     time.Time        `json:"at"`
		Record DeadLetterRecord `json:"record"`
	}{sink, r.Reason.Error(), time.Now().UTC(), DeadLetterRecord{r.Topic, r.Partition, r.Offset, r.Data}})
	if err != nil {
		return fmt.Errorf("cannot encode a dead letter: %w", err)
	}
	if err := d.write(append(line, '\n')); err != nil {
		return err
	}
	quarantined.WithLabelValues(sink).Inc()
	return nil
}

func (d *DeadLetters) write(lines []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := appendDurably(d.path, lines); err != nil {
		return fmt.Errorf("cannot write the dead-letter file: %w", err)
	}
	return nil
}

// Count returns the number of a sink's rows and skipped records that are in the file now, even
// after a restart. It is 0 once operators have moved the file away. If the file cannot be read,
// Count returns the last known numbers. Count is safe for concurrent use.
func (d *DeadLetters) Count(sink string) (rows, records int) {
	d.counting.Lock()
	defer d.counting.Unlock()
	info, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!os.SameFile(info, d.counted) || info.Size() < d.read) {
		d.counted, d.read, d.rows, d.records = info, 0, map[string]int{}, map[string]int{}
	}
	if err == nil && info.Size() > d.read {
		d.count()
	}
	return d.rows[sink], d.records[sink]
}

// count counts the lines after the first d.read bytes. It ignores those that a crash has truncated.
func (d *DeadLetters) count() {
	f, err := os.Open(d.path)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Seek(d.read, io.SeekStart); err != nil {
		return
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return // the rest is being written
		}
		d.read += int64(len(line))
		var l struct {
			Sink   string
			Record *struct{}
		}
		switch {
		case json.Unmarshal(line, &l) != nil:
		case l.Record != nil:
			d.records[l.Sink]++
		default:
			d.rows[l.Sink]++
		}
	}
}

// ItemOf returns a row as the measurement that the client sent.
func ItemOf(b *batch.Batch, row int) DeadLetterItem {
	item := DeadLetterItem{
		DetectorCode: string(b.Code(row)), MeasureTypeCode: string(b.TypeCode(int(b.Type[row]))),
		TimestampFrom: time.Unix(0, b.From[row]).UTC(), TimestampTo: time.Unix(0, b.To[row]).UTC(), Value: b.Value[row],
	}
	if b.HasQuality(row) {
		item.Quality = &b.Quality[row]
	}
	return item
}

// appendDurably appends lines and syncs the file. If a crash has truncated the last line,
// appendDurably starts on a new one.
func appendDurably(path string, lines []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	_, err = f.Write(lines)
	if err = cmp.Or(err, f.Sync()); err != nil {
		return err
	}
	return replace.SyncDir(filepath.Dir(path)) // the name of a new file becomes durable with its directory
}
