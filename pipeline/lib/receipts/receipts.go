// Package receipts keeps what became of batches: a receipt for each acceptance, and one for each
// part of a batch that a store has taken or permanently rejected.
//
//	sources/ingest, pipeline.Delivery ─▶ Waiting: memory and a file ─▶ Store: a table that replicas share
//
// A delivery adds a receipt after the store's acknowledgement and before it saves its cursor. After
// a crash, it repeats the block, with equal receipts, which replace the earlier ones. So receipts
// never claim more than the stores have. Nothing waits for the table: while it cannot be written,
// up to maxWaiting receipts wait, and later ones are dropped.
//
// The file keeps waiting receipts when the process is killed. It has space in reserve, because
// cursors move on a full disk too. It is not synced, and it is not shared: if the machine or its
// disk is lost within about interval of a delivery, the receipts of that delivery are lost, and the
// state of its batches never becomes final.
package receipts

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
)

const (
	interval   = 500 * time.Millisecond // between two inserts; ClickHouse prefers few
	retryAfter = 2 * time.Second
	maxWaiting = 300_000 // 24 MB
	maxInsert  = 50_000
	reserved   = 1 << 20 // bytes of the file; a receipt takes 150
)

// Receipt is what a sink has done with the rows of a batch from First on. If Sink is empty, the
// batch is durable, and no row is counted as delivered. Receipts with equal Batch, ReceivedAt, Sink
// and First replace one another.
type Receipt struct {
	Batch      batch.ID `json:"b"`
	Client     string   `json:"c"` // contract.Client.Owner
	ReceivedAt int64    `json:"r"` // of the frame; 0 without a Sink
	Accepted   uint32   `json:"n"` // rows of the frame
	Sink       string   `json:"s,omitempty"`
	First      uint32   `json:"f,omitempty"`
	Delivered  uint32   `json:"d,omitempty"`
	Dead       uint32   `json:"x,omitempty"` // in the dead-letter file
	At         int64    `json:"t"`           // Unix milliseconds
}

// key identifies receipts that replace one another.
func (r *Receipt) key() Receipt {
	return Receipt{Batch: r.Batch, ReceivedAt: r.ReceivedAt, Sink: r.Sink, First: r.First}
}

// Store is the table of receipts.
type Store interface {
	PutReceipts(ctx context.Context, list []Receipt) error
	// Receipts returns those of a batch of the client.
	Receipts(ctx context.Context, id batch.ID, client string) ([]Receipt, error)
}

// Waiting holds the receipts that are not in the table yet, and writes them to it. It is safe for
// concurrent use. A nil *Waiting drops all receipts.
type Waiting struct {
	store Store
	path  string // of the file of the receipts that are added; those being written are in path.sent
	log   zerolog.Logger

	mu      sync.Mutex
	list    []Receipt
	sent    int // number of receipts at the start of list that are being written, in path.sent
	file    *os.File
	space   int64  // what is left of the reserve of file
	rest    []byte // what could not be written to file yet
	failing bool   // the last insert failed
	full    bool   // receipts were dropped since the last insert

	accepted chan Receipt
	added    chan struct{}
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// Open reads the receipts that waited when the last process ended, and starts to write them.
func Open(path string, store Store, log zerolog.Logger) (*Waiting, error) {
	w := &Waiting{store: store, path: path, log: log, added: make(chan struct{}, 1), accepted: make(chan Receipt, 1000)}
	for _, name := range []string{w.sentPath(), path} {
		if err := w.read(name); err != nil { // they are only information: accepting batches is more important
			w.log.Warn().Err(err).Str("file", name).Msg("cannot read all receipts of batches: the state of some batches will not become final")
		}
	}
	var err error
	if w.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640); err != nil {
		return nil, fmt.Errorf("cannot keep receipts of batches: %w", err)
	}
	if reserve(w.file, reserved) == nil {
		w.space = reserved
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.signal()
	w.running.Go(func() { w.run(ctx) })
	w.running.Go(func() {
		for {
			select {
			case r := <-w.accepted:
				w.Add(r)
			case <-ctx.Done():
				return
			}
		}
	})
	return w, nil
}

func (w *Waiting) sentPath() string { return w.path + ".sent" }

func (w *Waiting) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r Receipt
		if len(w.list) < maxWaiting && json.Unmarshal(lines.Bytes(), &r) == nil { // a full disk may have truncated a line
			w.list = append(w.list, r)
		}
	}
	return lines.Err()
}

// Add adds receipts. It does not wait for the table.
func (w *Waiting) Add(list ...Receipt) {
	if w == nil || len(list) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list)+len(list) > maxWaiting || list[0].Sink == "" && len(w.list) > maxWaiting/2 { // deliveries count more
		if !w.full {
			w.full = true
			w.log.Warn().Int("waiting", len(w.list)).
				Msg("too many receipts of batches wait for the archive; dropping further ones: the state of their batches will not become final")
		}
		return
	}
	w.list = append(w.list, list...)
	for i := range list {
		line, _ := json.Marshal(&list[i])              // cannot fail
		w.rest = append(append(w.rest, '\n'), line...) // a new line first: the last one may be incomplete
	}
	w.flush()
	w.signal()
}

// flush writes the rest to the file. What a failing disk has not written is tried again later, and
// is lost if the process is killed before. The caller holds mu.
func (w *Waiting) flush() {
	for range 3 {
		if _, err := w.file.Write(w.rest); err != nil {
			continue
		}
		if w.space -= int64(len(w.rest)); w.space < reserved/2 && reserve(w.file, reserved) == nil {
			w.space = reserved
		}
		w.rest = w.rest[:0]
		return
	}
	if len(w.rest) > 4*reserved {
		w.rest = nil
	}
}

// Accepted adds the receipt of an acceptance, unless too many wait to be added: a request must not
// wait for a file, and deliveries know what was accepted too.
func (w *Waiting) Accepted(r Receipt) {
	if w == nil {
		return
	}
	select {
	case w.accepted <- r:
	default:
	}
}

func (w *Waiting) signal() {
	select {
	case w.added <- struct{}{}:
	default:
	}
}

func (w *Waiting) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.added:
		}
		wait := interval
		if more, err := w.write(ctx); err != nil {
			wait = retryAfter
			w.signal()
		} else if more {
			w.signal()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// write writes the oldest receipts to the table. more reports whether others wait.
func (w *Waiting) write(ctx context.Context) (more bool, err error) {
	w.mu.Lock()
	w.flush()
	if w.sent == 0 {
		w.rotate()
	}
	list := w.list[:w.sent:w.sent]
	w.mu.Unlock()
	for from := 0; from < len(list) && err == nil; from += maxInsert {
		err = w.store.PutReceipts(ctx, list[from:min(from+maxInsert, len(list))])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if !w.failing && ctx.Err() == nil {
			w.failing = true
			w.log.Warn().Err(err).Msg("cannot write receipts of batches to the archive; retrying")
		}
		return true, err
	}
	w.failing, w.full = false, false
	w.list, w.sent = slices.Clone(w.list[w.sent:]), 0
	if err := os.Remove(w.sentPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn().Err(err).Msg("cannot delete receipts that are in the archive; they will be written again")
	}
	return len(w.list) > 0, nil
}

// rotate begins to send all receipts: it renames the file and starts a new one. Without that, the
// receipts are written again after a restart. The caller holds mu.
func (w *Waiting) rotate() {
	if w.sent = len(w.list); w.sent == 0 {
		return
	}
	if _, err := os.Stat(w.sentPath()); err == nil { // from before the start; it is removed with what is sent now
		return
	}
	f, err := os.OpenFile(w.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o640)
	if err != nil {
		return
	}
	space := int64(reserved)
	if err := reserve(f, reserved); errors.Is(err, errors.ErrUnsupported) {
		space = 0
	} else if err != nil {
		_ = f.Close()
		return
	}
	if os.Rename(w.path, w.sentPath()) != nil {
		_ = f.Close()
		return
	}
	if os.Rename(f.Name(), w.path) != nil {
		_ = os.Rename(w.sentPath(), w.path)
		_ = f.Close()
		return
	}
	_ = w.file.Close()
	w.file, w.space = f, space
}

// Find returns the receipts of a batch of the client, those that wait too. It returns an error if
// the table cannot be read and no receipt waits.
func (w *Waiting) Find(ctx context.Context, id batch.ID, client string) ([]Receipt, error) {
	found := map[Receipt]Receipt{}
	w.mu.Lock()
	list := w.list // its elements never change
	w.mu.Unlock()
	for i := range list {
		if r := &list[i]; r.Batch == id && r.Client == client {
			found[r.key()] = *r
		}
	}
	stored, err := w.store.Receipts(ctx, id, client)
	for _, r := range stored {
		if later, waits := found[r.key()]; !waits || later.At < r.At {
			found[r.key()] = r
		}
	}
	if err != nil && len(found) == 0 {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Receipt) int { return cmp.Compare(a.At, b.At) }), nil
}

// Close writes the waiting receipts, until ctx is done. Those that remain are written after the
// next start.
func (w *Waiting) Close(ctx context.Context) error {
	if w == nil {
		return nil
	}
	w.stop()
	w.running.Wait()
	for len(w.accepted) > 0 {
		w.Add(<-w.accepted)
	}
	for more := true; more; {
		var err error
		if more, err = w.write(ctx); err != nil {
			break
		}
	}
	return w.file.Close()
}
