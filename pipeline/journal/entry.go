package journal

// Entry is a frame to be written. It can be reused after Wait, without further allocations.
type Entry struct {
	// Data is the payload. It must not be changed from a successful Enqueue until Wait returns.
	Data []byte
	// Seq is the frame's number in the journal, dense from 1, set by Enqueue. It is valid only if Wait returns nil; the seqs
	// of voided frames are reused.
	Seq uint64

	verdict chan error // capacity 1: the writer never waits for a caller
}

// Wait returns the outcome of the entry. It must be called exactly once after each successful Enqueue. After nil the frame is
// durable. After ErrVoided it is durably not in the journal. After ErrUnknown it may or may not be there after a restart.
func (e *Entry) Wait() error { return <-e.verdict }

// Enqueue queues e for the next commit, without waiting for the disk. Frames are in the order of the calls. It fails with
// ErrTooLarge, ErrBusy, ErrFull, ErrDiskLow, ErrFailed or ErrClosed; Wait must not be called then.
func (j *Journal) Enqueue(e *Entry) error {
	if len(e.Data) > j.cfg.MaxFrameBytes {
		return ErrTooLarge
	}
	if e.verdict == nil {
		e.verdict = make(chan error, 1)
	}
	room := roomFor(len(e.Data))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.unready(room); err != nil {
		if err == ErrFull {
			j.refused = room // Ready must report this too
		}
		return err
	}
	if j.queue.depth >= j.cfg.QueueEntries || j.queue.bytes+int64(len(e.Data)) > j.cfg.QueueBytes {
		return ErrBusy
	}
	e.Seq = j.next
	j.next++
	j.queue.waiting = append(j.queue.waiting, e)
	j.queue.count(+1, e)
	select {
	case j.wake <- struct{}{}:
	default: // the writer sees this entry together with the one that woke it
	}
	return nil
}

// queue holds the entries that wait for the writer and counts those that are not settled. Guarded by Journal.mu.
type queue struct {
	waiting []*Entry
	spare   []*Entry // the slice that the writer used last

	depth int   // entries that are not settled
	bytes int64 // their payloads
	room  int64 // upper bound of what they add to the folder
}

// take returns all waiting entries. The writer must be done with them before it calls take again.
func (q *queue) take() []*Entry {
	batch := q.waiting
	q.waiting, q.spare = q.spare[:0], batch
	return batch
}

func (q *queue) count(sign int, e *Entry) {
	q.depth += sign
	q.bytes += int64(sign) * int64(len(e.Data))
	q.room += int64(sign) * roomFor(len(e.Data))
}

// settle sends the verdict to every entry, in order. The entries then belong to their callers again.
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
