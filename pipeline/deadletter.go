package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/pipeline/batch"
)

// DeadLetters is the file of measurements that a store refuses for ever: one line of JSON each, durable before the
// delivery goes on. A crash between the two may repeat a line, never lose one.
type DeadLetters struct {
	mu   sync.Mutex
	path string
}

// DeadLetter is a line of the file.
type DeadLetter struct {
	Sink            string    `json:"sink"`
	Reason          string    `json:"reason"`
	At              time.Time `json:"at"`
	ProductInstance string    `json:"productInstance"`
	BatchID         string    `json:"batchId"`
	Index           uint32    `json:"index"`
	ReceivedAt      time.Time `json:"receivedAt"`
	Item            struct {
		DetectorCode    string    `json:"detectorCode"`
		MeasureTypeCode string    `json:"measureTypeCode"`
		TimestampFrom   time.Time `json:"timestampFrom"`
		TimestampTo     time.Time `json:"timestampTo"`
		Value           float64   `json:"value"`
		Quality         *float64  `json:"quality,omitempty"`
	} `json:"item"`
}

// NewDeadLetters names the file; it is made with the first letter.
func NewDeadLetters(path string) *DeadLetters { return &DeadLetters{path: path} }

// Check tells at the start what would hold a delivery up at the first refusal, perhaps years later: that the file cannot
// be written. It writes nothing, for the disk may be full.
func (d *DeadLetters) Check() error {
	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(d.path)
		if err = unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			err = &fs.PathError{Op: "write into", Path: dir, Err: err}
		}
		return deadLetterError(err)
	}
	if err == nil {
		err = f.Close()
	}
	return deadLetterError(err)
}

func deadLetterError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write the dead-letter file: %w", err)
}

// Add appends the rows of a block and returns when they are on disk.
func (d *DeadLetters) Add(sink string, rows batch.Block, reason error) error {
	var lines []byte
	for _, s := range rows {
		for row := s.From; row < s.To; row++ {
			line, err := json.Marshal(letter(sink, reason, s.Batch, row))
			if err != nil {
				return fmt.Errorf("cannot write a dead letter: %w", err)
			}
			lines = append(append(lines, line...), '\n')
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := deadLetterError(appendDurably(d.path, lines)); err != nil {
		return err
	}
	deadLetters(sink).Add(rows.Rows())
	return nil
}

func letter(sink string, reason error, b *batch.Batch, row int) DeadLetter {
	l := DeadLetter{Sink: sink, Reason: reason.Error(), At: time.Now().UTC(), ProductInstance: b.ProductInstance, BatchID: b.ID.String(), Index: b.Index[row], ReceivedAt: time.Unix(0, b.ReceivedAt).UTC()}
	l.Item.DetectorCode = string(b.Code(row))
	l.Item.MeasureTypeCode = string(b.TypeCode(int(b.Type[row])))
	l.Item.TimestampFrom, l.Item.TimestampTo = time.Unix(0, b.From[row]).UTC(), time.Unix(0, b.To[row]).UTC()
	l.Item.Value = b.Value[row]
	if b.HasQuality(row) {
		l.Item.Quality = &b.Quality[row]
	}
	return l
}

// appendDurably starts a line of its own even where a crash cut the last one.
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
	if _, err := f.Write(lines); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a new file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
