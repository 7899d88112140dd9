package journal

// Entry is one frame on its way to the disk. It may be used again after Wait; in the steady state that allocates nothing.
type Entry struct {
	// Data is the payload. It belongs to the journal from a successful Enqueue until Wait returns, and is not changed.
	Data []byte
	// Seq is set by Enqueue: the frame's place in the journal, dense from 1. It counts only if Wait returns nil; the seqs
	// of voided frames are given to later ones.
	Seq uint64

	verdict chan error // capacity 1: the writer never waits for a caller
}

// Wait returns once the fate of the entry is settled; to be called exactly once after each successful Enqueue.
// nil: the frame is durable. ErrVoided: it is durably not there, it is safe to answer that nothing was taken. ErrUnknown:
// it could not be voided either, and the client must not be told anything.
func (e *Entry) Wait() error { return <-e.verdict }

// Enqueue takes e for the next commit and never waits for the disk. Frames stand in the journal in the order of the calls.
// It refuses with ErrTooLarge, ErrBusy, ErrFull, ErrDiskLow, ErrFailed or ErrClosed; then there is nothing to wait for.
func (j *Journal) Enqueue(e *Entry) error {
	if len(e.Data) > j.cfg.MaxFrameBytes {
		return ErrTooLarge
	}
	if e.verdict == nil {
		e.verdict = make(chan error, 1)
	}
	if err := j.accept(e); err != nil {
		return err
	}
	select {
	case j.wake <- struct{}{}:
	default: // the writer will see this entry together with the one that woke it
	}
	return nil
}

func (j *Journal) accept(e *Entry) error {
	room := roomFor(len(e.Data))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.apiErr(room); err != nil {
		if err == ErrFull {
			j.refused = room // so that Ready does not call ready what has just refused
		}
		return err
	}
	if j.queue.depth >= j.cfg.QueueEntries || j.queue.bytes+int64(len(e.Data)) > j.cfg.QueueBytes {
		return ErrBusy
	}
	e.Seq = j.next
	j.next++
	j.queue.push(e)
	return nil
}

// queue holds the entries that wait for the writer, and counts those that wait for the disk too. Guarded by Journal.mu.
type queue struct {
	waiting []*Entry
	spare   []*Entry // the slice that the writer had last

	depth int   // entries without a verdict
	bytes int64 // their payloads
	room  int64 // the most that they will add to the folder
}

func (q *queue) push(e *Entry) {
	q.waiting = append(q.waiting, e)
	q.count(+1, e)
}

// take hands all waiting entries to the writer, which must be done with them before it calls take again.
func (q *queue) take() []*Entry {
	batch := q.waiting
	q.waiting, q.spare = q.spare[:0], batch
	return batch
}

func (q *queue) count(sign int, e *Entry) {
	q.depth += sign
	q.bytes += int64(sign) * int64(len(e.Data))
	q.room += int64(sign) * roomFor(len(e.Data))
	queueDepth.Set(float64(q.depth))
}

// settle gives every entry of a part of the batch its verdict, in order. The entries belong to their callers from then on.
func (j *Journal) settle(batch []*Entry, verdict error) {
	j.mu.Lock()
	for _, e := range batch {
		j.queue.count(-1, e)
	}
	j.mu.Unlock()
	for _, e := range batch {
		e.verdict <- verdict
	}
}
