package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/fair"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/contract"
)

// IdempotencyConfig configures the idempotency store (contract 1.5).
type IdempotencyConfig struct {
	// time for which the response to a batch is remembered; must exceed the clients' retry period
	Window time.Duration `setting:"window"`
	// maximum memory used by these responses, compressed; at the limit, requests with a new key get
	// 503
	MaxBytes int64 `setting:"max_bytes"`
	// maximum memory used by one client's responses; never more than half of max_bytes
	MaxBytesPerClient int64          `setting:"max_bytes_per_client"`
	Journal           journal.Config `setting:"-"` // journal of these responses, a constant that tests vary
}

// DefaultIdempotencyConfig returns a window of one hour and 128 MiB, enough for about 400,000
// responses without rejections; one client may use half.
func DefaultIdempotencyConfig() IdempotencyConfig {
	c := IdempotencyConfig{Window: time.Hour, MaxBytes: 128 << 20, MaxBytesPerClient: 64 << 20, Journal: journal.DefaultConfig()}
	c.Journal.Dir = ""
	c.Journal.SegmentBytes, c.Journal.MaxBytes = 4<<20, 1<<30 // two segments fit on a disk that is almost full
	c.Journal.MinFreeBytes = 0                                // the main journal can free space only after responses were copied to this one
	return c
}

// Validate reports every setting that is out of bounds.
func (c IdempotencyConfig) Validate() error {
	return errors.Join(
		settings.Within("window", c.Window, time.Second, 30*24*time.Hour, "clients rely on it for retries"),
		settings.AtLeast("max_bytes", c.MaxBytes, 1<<20, "a single response with many rejections may need this much"),
		settings.AtLeast("max_bytes_per_client", c.MaxBytesPerClient, 1<<10, "a response takes about 300 bytes"),
	)
}

// IdempotencyConsumer is the name of the store's cursor in the main journal.
const IdempotencyConsumer = "idempotency"

// windowConsumer is the name of the cursor in the store's own journal. Responses before it have
// expired.
const windowConsumer = "window"

// IdempotencyStore remembers the 207s of requests with an Idempotency-Key, so that a retry of the
// same batch gets the same response and is not stored twice (contract 1.5).
//
// A response becomes durable in the frame of its batch. Frames are deleted once all sinks have
// delivered them, but responses are kept for the window. Therefore the store is another consumer of
// the main journal: it copies the responses, without the rows, to its own journal. At startup it
// reads both journals.
type IdempotencyStore struct {
	cfg  IdempotencyConfig
	main Journal
	from Source // reads main; nil if main cannot be read again: a crash then loses responses that are not copied yet
	own  *journal.Journal
	now  func() time.Time

	mu      sync.Mutex
	known   map[scopedKey]*storedResponse
	order   []*storedResponse // by expiry, oldest first
	fresh   []*storedResponse // durable in main, not copied yet
	pending map[uint64]int    // frame of main → number of responses to copy; may exceed 1, because seqs of voided frames are reused
	held    map[scopedKey]struct{}
	bytes   *fair.Shares // sizes of the responses in known

	stop context.CancelFunc
	done chan struct{}
}

// scopedKey is an Idempotency-Key and the client that uses it. client is contract.Client.Owner,
// which includes the product instance.
type scopedKey struct{ client, key string }

type storedResponse struct {
	scopedKey
	hash    uint64
	frame   []byte // see batch.FrameWithoutRows
	expires time.Time
	main    uint64 // seq of the frame in the main journal
	seq     uint64 // seq of the copy in the store's journal, 0 if not copied yet
}

func (a *storedResponse) size() int64 {
	return int64(len(a.frame)+len(a.key)+len(a.client)) + 216
}

// OpenIdempotencyStore loads the remembered responses and starts the goroutine that copies new
// ones, which Close stops. cfg.Journal.Dir must be set. from reads main; the responses in frames
// before its cursor have been copied. It is nil if main cannot be read again.
func OpenIdempotencyStore(cfg IdempotencyConfig, main Journal, from Source, opts ...journal.Option) (*IdempotencyStore, error) {
	own, err := journal.Open(cfg.Journal, []string{windowConsumer}, append([]journal.Option{journal.WithName("responses")}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the idempotency store: %w", err)
	}
	s := &IdempotencyStore{
		cfg: cfg, main: main, from: from, own: own, now: time.Now, done: make(chan struct{}),
		known: map[scopedKey]*storedResponse{}, pending: map[uint64]int{}, held: map[scopedKey]struct{}{}, bytes: fair.New(cfg.MaxBytes),
	}
	// Nothing is written here, because the daemon must start even on a full disk: only its
	// deliveries can free space.
	err = s.load(own.Reader(0), func(a *storedResponse, seq uint64) { a.seq = seq })
	if err == nil && from != nil {
		start, _ := from.Cursor().Load()
		err = s.load(from.Reader(start), func(a *storedResponse, seq uint64) {
			a.main = seq
			s.pending[seq]++
			s.fresh = append(s.fresh, a)
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read the idempotency store: %w", err), own.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.run(ctx)
	return s, nil
}

// Close stops copying. Responses that are not copied yet remain in the main journal; if it cannot
// be read again, Close copies them. No request may be in progress.
func (s *IdempotencyStore) Close() error {
	s.stop()
	<-s.done
	var err error
	if s.from == nil {
		if err = s.copy(); err != nil {
			err = fmt.Errorf("cannot save the latest responses: %w", err)
		}
	}
	return errors.Join(err, s.own.Close())
}

func (s *IdempotencyStore) load(r durable.Reader, locate func(a *storedResponse, seq uint64)) error {
	var buf []byte
	for {
		seq, frame, ok, err := r.TryNext(buf)
		if err != nil || !ok {
			return err
		}
		buf = frame
		id, err := batch.FrameKey(frame)
		if err != nil {
			return err
		}
		if id.Key != "" {
			a := s.newResponse(id, frame)
			locate(a, seq)
			s.add(a)
		}
	}
}

// Hold claims a client's key until Release, or returns a 409 if another request has it.
func (in *Intake) Hold(client, key string) *contract.APIError {
	s, k := in.idempotency, scopedKey{client, key}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.held[k]; taken {
		return &contract.APIError{
			Code: contract.IdempotencyKeyInUse, Description: "a request with this Idempotency-Key is in progress; retry after it ends",
			Parameter: "Idempotency-Key", RetryAfter: time.Second,
		}
	}
	s.held[k] = struct{}{}
	return nil
}

// Release releases a key that Hold has claimed.
func (in *Intake) Release(client, key string) {
	s := in.idempotency
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, scopedKey{client, key})
}

// admit returns a 503 if a response with a new key may not be stored. The caller must hold mu.
func (s *IdempotencyStore) admit(k scopedKey) *contract.APIError {
	switch {
	case s.known[k] != nil:
	case s.bytes.Free() <= 0:
		return contract.Unavailable("the idempotency store is full; retry later, or send the batch without an Idempotency-Key", 30*time.Second)
	case s.exhausted(k.client):
		return contract.Unavailable(fmt.Sprintf("this client's quota in the idempotency store is exhausted: its responses use %d bytes; "+
			"retry when older ones have expired, or send the batch without an Idempotency-Key", s.bytes.Held(k.client)), 30*time.Second)
	}
	return nil
}

// Full returns an error if requests with a new key are rejected, because the store is full or the
// quotas of some clients are exhausted.
func (s *IdempotencyStore) Full() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes.Free() <= 0 {
		return fmt.Errorf("the store is full (%d bytes): batches with a new Idempotency-Key are rejected with 503; "+
			"raise pipeline.idempotency.max_bytes or lower pipeline.idempotency.window", s.bytes.Total())
	}
	var clients []string
	for owner := range s.bytes.Clients() {
		if s.exhausted(owner) {
			_, name, _ := strings.Cut(owner, "\x00")
			clients = append(clients, strconv.Quote(name))
		}
	}
	if len(clients) == 0 {
		return nil
	}
	slices.Sort(clients)
	if more := len(clients) - 10; more > 0 {
		clients = append(clients[:10], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("the share of these clients is full, and their batches with a new Idempotency-Key are rejected with 503: %s; "+
		"raise pipeline.idempotency.max_bytes_per_client and max_bytes, or lower pipeline.idempotency.window", strings.Join(clients, ", "))
}

// exhausted reports whether a client has used up its quota. The caller must hold mu.
func (s *IdempotencyStore) exhausted(client string) bool {
	return s.bytes.Held(client) >= s.cfg.MaxBytesPerClient || s.bytes.Check(client, 1) == fair.Exceeded
}

// replay sets sub.Result to the result of an earlier request with the same key and body. It returns
// false if there was none, and a 422 if the key was used for a different body, and a 503 if there
// is no room for a new response.
func (s *IdempotencyStore) replay(sub *batch.Submission, hash uint64) (bool, error) {
	if sub.IdempotencyKey == "" {
		return false, nil
	}
	k := scopedKey{sub.Client, sub.IdempotencyKey}
	s.mu.Lock()
	a, apiErr := s.known[k], s.admit(k)
	s.mu.Unlock()
	if apiErr != nil {
		return false, apiErr
	}
	if a == nil || !s.now().Before(a.expires) {
		return false, nil
	}
	if a.hash != hash {
		return false, contract.NewParameterError(contract.IdempotencyKeyReused, "Idempotency-Key",
			"this Idempotency-Key was used for a different body; use a new key for each batch")
	}
	var b batch.Batch
	var first batch.Response
	if err := batch.DecodeFrame(a.frame, &b, &first); err != nil {
		return false, contract.NewError(contract.InternalError, "cannot read the remembered response: "+err.Error())
	}
	sub.Result = batch.Result{
		ID: b.ID, Items: first.Items, Accepted: first.Items - first.Len(), Duplicates: first.Duplicates,
		Replay: true, Rejections: first.Rejections,
	}
	return true, nil
}

// enqueue queues a frame with a response in the main journal. The store's cursor stays before the
// frame until settle has been called and the response has been copied.
func (s *IdempotencyStore) enqueue(e *durable.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.main.Enqueue(e); err != nil {
		return err
	}
	s.pending[e.Seq]++
	return nil
}

// committed is called with the outcome of an enqueued frame. If err is nil, it remembers the
// response in the frame. A failed frame no longer holds the cursor back: either the journal voids
// it before accepting new frames, or the next process finds it after the cursor.
func (s *IdempotencyStore) committed(e *durable.Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unpend(e.Seq)
		return
	}
	id, _ := batch.FrameKey(e.Data) // cannot fail: this process has encoded the frame
	a := s.newResponse(id, e.Data)
	a.main = e.Seq
	s.add(a)
	s.fresh = append(s.fresh, a)
}

func (s *IdempotencyStore) newResponse(id batch.Response, frame []byte) *storedResponse {
	// If the clock was set back, received_at may be in the future; the age is then 0.
	now := s.now()
	age := min(max(now.Sub(time.Unix(0, batch.FrameReceivedAt(frame))), 0), s.cfg.Window)
	return &storedResponse{
		scopedKey: scopedKey{id.Client, id.Key}, hash: id.BodyHash,
		frame: batch.FrameWithoutRows(frame), expires: now.Add(s.cfg.Window - age),
	}
}

// unpend records that a response was copied or that its frame failed. The caller must hold mu.
func (s *IdempotencyStore) unpend(seq uint64) {
	if s.pending[seq]--; s.pending[seq] == 0 {
		delete(s.pending, seq)
	}
}

// add adds a response, replacing any older one with the same key. The caller must hold mu, or no
// other goroutine uses the store yet.
func (s *IdempotencyStore) add(a *storedResponse) {
	if old := s.known[a.scopedKey]; old != nil {
		s.charge(old.client, -old.size())
	}
	s.known[a.scopedKey] = a
	s.order = append(s.order, a)
	s.charge(a.client, a.size())
}

// charge adds n bytes (possibly negative) to a client's memory use. The caller must hold mu.
func (s *IdempotencyStore) charge(client string, n int64) {
	s.bytes.Add(client, n)
	idempotencyBytes.Set(float64(s.bytes.Total()))
}

func (s *IdempotencyStore) run(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.copy(); err != nil {
			idempotencyErrors.Inc() // retried at the next tick; until then the main journal keeps the responses
		}
		s.expire()
	}
}

// copy writes the fresh responses to the store's own journal, then advances the store's cursor in
// the main journal.
func (s *IdempotencyStore) copy() error {
	next := uint64(0)
	s.mu.Lock()
	if s.from != nil {
		_, next = s.from.Bounds()
	}
	fresh := s.fresh
	s.fresh = nil
	s.mu.Unlock()

	var failed error
	entries := make([]durable.Entry, len(fresh))
	queued := 0
	for ; queued < len(fresh); queued++ {
		entries[queued].Data = fresh[queued].frame
		if failed = s.own.Enqueue(&entries[queued]); failed != nil {
			break
		}
	}
	for i := range queued {
		if err := entries[i].Wait(); err != nil {
			failed = err
		} else {
			fresh[i].seq = entries[i].Seq
		}
	}

	s.mu.Lock()
	for _, a := range fresh {
		if a.seq != 0 {
			s.unpend(a.main)
		}
	}
	left := slices.DeleteFunc(fresh, func(a *storedResponse) bool { return a.seq != 0 })
	s.fresh = append(left, s.fresh...) // keeps the order of expiry, which is also the order of the store's own journal
	for seq := range s.pending {
		next = min(next, seq)
	}
	s.mu.Unlock()
	if failed != nil || s.from == nil {
		return failed
	}
	if done, _ := s.from.Cursor().Load(); done >= next {
		return nil
	}
	return s.from.Cursor().Save(next, nil)
}

// expire removes copied responses that have expired.
func (s *IdempotencyStore) expire() {
	now := s.now()
	last := uint64(0)
	s.mu.Lock()
	n := 0
	for n < len(s.order) && s.order[n].seq != 0 && !now.Before(s.order[n].expires) {
		a := s.order[n]
		last = max(last, a.seq)
		if s.known[a.scopedKey] == a {
			delete(s.known, a.scopedKey)
			s.charge(a.client, -a.size())
		}
		n++
	}
	clear(s.order[:n])
	s.order = s.order[n:]
	s.mu.Unlock()
	if last == 0 {
		return
	}
	if err := s.own.Cursor(windowConsumer).Save(last+1, nil); err != nil {
		idempotencyErrors.Inc()
	}
}
