package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/fair"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/pipeline/lib/receipts"
	"trafficd/schemas/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an intake with a real journal in a directory.
type fixture struct {
	receipts *receipts.Waiting // of deliveries; may be nil
	t        testing.TB
	dir      string
	cfg      Config
	journal  *journal.Journal
	store    *IdempotencyStore
	intake   *Intake
	codes    detectors
}

type detectors map[string]*batch.Detectors

func (d detectors) Snapshot(instance string) *batch.Detectors { return d[instance] }

func (d detectors) HasFeed(instance string) bool {
	_, ok := d[instance]
	return ok
}

func set(codes ...string) *batch.Detectors {
	d, _ := batch.NewDetectors(codes)
	return d
}

func open(t testing.TB, dir string, change ...func(*Config)) *fixture {
	h := &fixture{t: t, dir: dir, cfg: DefaultConfig(), codes: detectors{"city": set("A", "B", "C")}}
	for _, c := range change {
		c(&h.cfg)
	}
	jc := journal.DefaultConfig()
	jc.Dir = filepath.Join(dir, "journal")
	h.cfg.Idempotency.Journal.Dir = filepath.Join(dir, "idempotency")
	var err error
	h.journal, err = journal.Open(jc, []string{"sink", IdempotencyConsumer})
	require.NoError(t, err)
	h.store, err = OpenIdempotencyStore(h.cfg.Idempotency, h.journal, Local(h.journal, IdempotencyConsumer))
	require.NoError(t, err)
	h.intake, err = NewIntake(h.cfg, h.journal, h.codes, h.store, zerolog.Nop())
	require.NoError(t, err)
	return h
}

func (h *fixture) close() {
	h.intake.Close()
	require.NoError(h.t, h.store.Close())
	require.NoError(h.t, h.journal.Close())
}

// setClock replaces the clock of the intake, as if the daemon had been restarted.
func (h *fixture) setClock(now func() time.Time) {
	h.intake.clock.now = now
	h.intake.clock.trusted = h.intake.clock.read()
}

func (h *fixture) submit(body, key string) (*batch.Submission, error) {
	s := &batch.Submission{ProductInstance: "city", Client: "city", IdempotencyKey: key, Body: bytes.NewReader(zipped(body))}
	return s, h.intake.Submit(s)
}

// frames returns all batches in the journal.
func (h *fixture) frames() (list []batch.Batch) {
	r := h.journal.Reader(0)
	for {
		_, frame, ok, err := r.TryNext(nil)
		require.NoError(h.t, err)
		if !ok {
			return list
		}
		var b batch.Batch
		require.NoError(h.t, batch.DecodeFrame(frame, &b, nil))
		list = append(list, b)
	}
}

func zipped(body string) []byte { return compress.Gzip(body) }

func item(code string, value any) string {
	return fmt.Sprintf(`{"detectorCode":"%s","measureTypeCode":"speed","timestampFrom":"2026-01-01T00:00:00Z","timestampTo":"2026-01-01T00:05:00Z","value":%v}`, code, value)
}

func measurements(items ...string) string {
	return `{"measurements":[` + strings.Join(items, ",") + `]}`
}

func TestSubmitStoresValidItems(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	s, err := h.submit(measurements(item("A", 1), item("X", 2), item("B", 3)), "")
	require.NoError(t, err)
	require.Equal(t, 3, s.Result.Items)
	require.Equal(t, 2, s.Result.Accepted)
	require.Equal(t, 1, s.Result.Rejected())
	require.Equal(t, contract.UnknownDetector, s.Result.List[0].Code)
	require.Equal(t, uint32(1), s.Result.List[0].Index)
	frames := h.frames()
	require.Len(t, frames, 1)
	b := frames[0]
	require.Equal(t, s.Result.ID, b.ID)
	require.Equal(t, "city", b.ProductInstance)
	require.Equal(t, []uint32{0, 2}, b.Index)
	require.Equal(t, "AB", string(b.Codes))
	require.Equal(t, []float64{1, 3}, b.Value)
	require.EqualValues(t, 7, s.Result.ID[6]>>4, "a UUIDv7")
	require.Equal(t, b.To[1], s.Result.Newest)
}

// TestDuplicatesAreCounted checks that items with the same identity are all stored, and that a
// replay has the same number of duplicates, even after a restart.
func TestDuplicatesAreCounted(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	body := measurements(item("A", 1), item("X", 2), item("A", 3), item("X", 4), item("B", 5), item("A", 6))
	s, err := h.submit(body, "k")
	require.NoError(t, err)
	require.Equal(t, 2, s.Result.Duplicates)
	require.Equal(t, 4, s.Result.Accepted)
	require.Equal(t, "AABA", string(h.frames()[0].Codes))
	for range 2 {
		again, err := h.submit(body, "k")
		require.NoError(t, err)
		require.True(t, again.Result.Replay)
		require.Equal(t, 2, again.Result.Duplicates)
		h.close()
		h = open(t, dir)
	}
	h.close()
}

func TestNothingOfAFailedRequestIsStored(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.MaxBodyBytes = 2000; c.Decode.BatchLimit = 5; c.Decode.HardLimit = 9 })
	defer h.close()
	good := measurements(item("A", 1))
	whole := zipped(good)
	f := func(name string, body io.Reader, want contract.Code) {
		t.Helper()
		s := &batch.Submission{ProductInstance: "city", Body: body}
		err := h.intake.Submit(s)
		var r *contract.APIError
		require.ErrorAs(t, err, &r, name)
		require.Equal(t, want, r.Code, "%s: %s", name, r)
	}
	bits := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		return b
	}
	f("empty", bytes.NewReader(nil), contract.InvalidGzip)
	f("not gzip", strings.NewReader(good), contract.InvalidGzip)
	for n := range len(whole) {
		f(fmt.Sprint("truncated at ", n), bytes.NewReader(whole[:n]), contract.InvalidGzip)
	}
	f("bad checksum", bytes.NewReader(bits(len(whole)-8)), contract.InvalidGzip)
	f("bad length", bytes.NewReader(bits(len(whole)-1)), contract.InvalidGzip)
	f("bytes after the end", bytes.NewReader(append(bytes.Clone(whole), "x"...)), contract.InvalidGzip)
	named := append(bytes.Clone(whole), 0x1f, 0x8b, 8, 0x18, 0, 0, 0, 0, 0, 0xff)
	f("truncated before the name of a later member", bytes.NewReader(named), contract.InvalidGzip)
	f("truncated in the name of a later member", bytes.NewReader(append(bytes.Clone(named), "name"...)), contract.InvalidGzip)
	f("truncated in the comment of a later member", bytes.NewReader(append(bytes.Clone(named), "name\x00comment"...)), contract.InvalidGzip)
	f("zeros after the end", bytes.NewReader(append(bytes.Clone(whole), make([]byte, 20)...)), contract.InvalidGzip)
	f("two JSON texts", bytes.NewReader(append(bytes.Clone(whole), whole...)), contract.InvalidJSON)
	f("invalid JSON", bytes.NewReader(zipped(good+"]")), contract.InvalidJSON)
	f("too long", bytes.NewReader(zipped(good+strings.Repeat(" ", 3000))), contract.BodyTooLarge)
	f("too many", bytes.NewReader(zipped(measurements(strings.Split(strings.Repeat("{},", 9)+"{}", ",")...))), contract.TooManyItems)
	f("the first of two errors", bytes.NewReader(zipped("x"+strings.Repeat(" ", 3000))), contract.InvalidJSON)
	slow := contract.NewError(contract.RequestTimeout, "too slow")
	f("truncated by a timeout", io.MultiReader(bytes.NewReader(whole[:40]), iotest.ErrReader(slow)), contract.RequestTimeout)
	f("invalid JSON before the timeout", io.MultiReader(bytes.NewReader(zipped("x" + good)[:60]), iotest.ErrReader(slow)), contract.InvalidJSON)
	require.Empty(t, h.frames())

	half := len(good) / 2
	two := append(zipped(good[:half]), zipped(good[half:])...)
	s := &batch.Submission{ProductInstance: "city", Body: iotest.OneByteReader(bytes.NewReader(two))}
	require.NoError(t, h.intake.Submit(s), "several gzip members are valid")
	require.Len(t, h.frames(), 1)

	long := append([]byte{0x1f, 0x8b, 8, 0x18, 0, 0, 0, 0, 0, 0xff}, strings.Repeat("n", 600)+"\x00"+strings.Repeat("c", 70_000)+"\x00"...)
	s = &batch.Submission{ProductInstance: "city", Body: bytes.NewReader(append(long, whole[10:]...))}
	require.NoError(t, h.intake.Submit(s), "a name and a comment may be long")

	err := h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: bytes.NewReader(append(bytes.Clone(whole), "x"...))})
	require.ErrorContains(t, err, "bytes after the end of the gzip stream")
	err = h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: bytes.NewReader(whole[:40])})
	require.ErrorContains(t, err, "unexpected EOF after 40 bytes; send the output of gzip whole")
	err = h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: bytes.NewReader(nil)})
	require.ErrorContains(t, err, "the body is empty; send")
}

func TestReadiness(t *testing.T) {
	h := open(t, t.TempDir())
	require.Nil(t, h.intake.Ready("city"))
	h.codes["loading"] = nil
	r := h.intake.Ready("loading")
	require.Equal(t, contract.ServiceUnavailable, r.Code)
	require.Positive(t, r.RetryAfter)
	_, err := h.submit(`x`, "")
	require.Error(t, err)
	h.close()
	_, err = h.submit(measurements(item("A", 1)), "")
	var apiErr *contract.APIError
	require.ErrorAs(t, err, &apiErr)
	require.Equal(t, contract.ServiceUnavailable, apiErr.Code)
	require.Equal(t, contract.Forbidden, h.intake.Ready("elsewhere").Code, "a permanent error never looks like a temporary one")
}

// TestNoRegistryFeedIsForbidden checks that a key whose product instance has no registry feed gets
// 403, not 503: a retry cannot succeed.
func TestNoRegistryFeedIsForbidden(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	apiErr := h.intake.Ready("elsewhere")
	require.Equal(t, contract.Forbidden, apiErr.Code)
	require.Zero(t, apiErr.RetryAfter)
	require.Contains(t, apiErr.Description, "the key's product instance elsewhere has no detector registry")
	err := h.intake.Submit(&batch.Submission{ProductInstance: "elsewhere", Body: strings.NewReader("")})
	require.ErrorAs(t, err, &apiErr)
	require.Equal(t, contract.Forbidden, apiErr.Code)
}

// TestFullQueue checks that when all workers are busy and the queue is full, Submit fails
// immediately instead of waiting.
func TestFullQueue(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Workers, c.Queue = 1, 1 })
	defer h.close()
	started, release := make(chan struct{}), make(chan struct{})
	slow := &batch.Submission{ProductInstance: "city", Body: readerFunc(func([]byte) (int, error) {
		close(started)
		<-release
		return 0, io.EOF
	})}
	var clients sync.WaitGroup
	clients.Go(func() { _ = h.intake.Submit(slow) })
	<-started
	clients.Go(func() {
		if _, err := h.submit(measurements(item("A", 1)), ""); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool { return h.intake.turns.Depth() == 1 }, time.Minute, time.Millisecond)
	_, err := h.submit(measurements(item("A", 2)), "")
	var r *contract.APIError
	require.ErrorAs(t, err, &r)
	require.Equal(t, contract.ServiceUnavailable, r.Code)
	require.Positive(t, r.RetryAfter)
	close(release)
	clients.Wait()
	require.Len(t, h.frames(), 1)
}

type peer bool

func (p peer) Gone() bool { return bool(p) }

// TestQueuedBatchOfAGoneClient checks that a batch that had to wait is not stored if its client has
// gone in the meantime, and that one that did not have to wait is.
func TestQueuedBatchOfAGoneClient(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Workers = 1 })
	defer h.close()
	submit := func(p batch.Peer) error {
		body := bytes.NewReader(zipped(measurements(item("A", 1))))
		return h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: body, Peer: p})
	}
	require.NoError(t, submit(peer(true)))
	started, release := make(chan struct{}), make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		_ = h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: readerFunc(func([]byte) (int, error) {
			close(started)
			<-release
			return 0, io.EOF
		})})
	})
	<-started
	errs := make([]error, 3)
	for i, p := range []batch.Peer{peer(true), peer(false), nil} {
		clients.Go(func() { errs[i] = submit(p) })
	}
	require.Eventually(t, func() bool { return h.intake.turns.Depth() == 3 }, time.Minute, time.Millisecond)
	close(release)
	clients.Wait()
	var r *contract.APIError
	require.ErrorAs(t, errs[0], &r)
	require.Equal(t, contract.ServiceUnavailable, r.Code)
	require.NoError(t, errors.Join(errs[1:]...))
	require.Len(t, h.frames(), 3)
}

// TestClientLeavesWorkersFree checks that the bodies of one client take at most half of the
// workers, and that no more workers than configured are ever created.
func TestClientLeavesWorkersFree(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Workers = 4 })
	defer h.close()
	started, release := make(chan struct{}, 4), make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			_ = h.intake.Submit(&batch.Submission{ProductInstance: "city", Client: "greedy", Body: readerFunc(func([]byte) (int, error) {
				started <- struct{}{}
				<-release
				return 0, io.EOF
			})})
		})
	}
	<-started
	<-started
	require.Eventually(t, func() bool { return h.intake.turns.Depth() == 2 }, time.Minute, time.Millisecond)
	for range 20 {
		_, err := h.submit(measurements(item("A", 1)), "")
		require.NoError(t, err)
	}
	require.Empty(t, started)
	require.Len(t, h.intake.idle, 1)
	for range 20 {
		clients.Go(func() {
			if _, err := h.submit(measurements(item("A", 1)), ""); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	clients.Wait()
	require.LessOrEqual(t, len(h.intake.idle), 4)
	require.Len(t, h.frames(), 40)
}

// TestLastIdleWorkerIsUsedFirst checks that the worker that became idle last gets the next body.
func TestLastIdleWorkerIsUsedFirst(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	one, two := h.intake.takeWorker(), h.intake.takeWorker()
	require.NotSame(t, one, two)
	h.intake.putWorker(one)
	h.intake.putWorker(two)
	require.Same(t, two, h.intake.takeWorker())
	require.Same(t, one, h.intake.takeWorker())
}

// TestPanicEndsTurn checks that a body at which a worker panics does not keep others from being
// processed. Callers of Submit respond with a 500.
func TestPanicEndsTurn(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Workers = 1 })
	defer h.close()
	for range 3 {
		require.Panics(t, func() {
			_ = h.intake.Submit(&batch.Submission{ProductInstance: "city", Body: readerFunc(func([]byte) (int, error) { panic("") })})
		})
		require.Empty(t, h.intake.idle, "a worker that panicked is not used again")
	}
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	require.Len(t, h.frames(), 1)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReceivedAtAlwaysIncreases(t *testing.T) {
	dir := t.TempDir()
	clock := time.Now()
	last := int64(0)
	for range 3 {
		h := open(t, dir)
		h.intake.clock.now = func() time.Time { return clock }
		for range 5 {
			_, err := h.submit(measurements(item("A", 1)), "")
			require.NoError(t, err)
			clock = clock.Add(-time.Second)
		}
		for _, b := range h.frames()[max(0, len(h.frames())-5):] {
			require.Greater(t, b.ReceivedAt, last)
			last = b.ReceivedAt
		}
		h.close()
	}
}

func TestConcurrentBatchesSeeOneSnapshotEach(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	a, b := set("A"), set("B")
	registry := &swapping{}
	registry.Store(a)
	h.intake.registry = registry
	var items []string
	for range 200 {
		items = append(items, item("A", 1), item("B", 2))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				registry.Store([]*batch.Detectors{a, b}[n%2])
			}
		}
	})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				s, err := h.submit(measurements(items...), "")
				if err != nil || s.Result.Accepted != 200 {
					t.Errorf("got error %v and %d accepted items, want 200 of one snapshot", err, s.Result.Accepted)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	wg.Wait()
}

type swapping struct {
	sync.Mutex
	d *batch.Detectors
}

func (s *swapping) Store(d *batch.Detectors) { s.Lock(); s.d = d; s.Unlock() }
func (s *swapping) HasFeed(string) bool      { return true }

func (s *swapping) Snapshot(string) *batch.Detectors {
	s.Lock()
	defer s.Unlock()
	return s.d
}

func TestRetryGetsTheSameResult(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	body := measurements(item("A", 1), item("X", 2), `7`)
	first, err := h.submit(body, "key-1")
	require.NoError(t, err)
	require.False(t, first.Result.Replay)
	none, err := h.submit(measurements(item("X", 2)), "key-0")
	require.NoError(t, err)
	require.Zero(t, none.Result.Accepted)

	again := func() {
		t.Helper()
		for _, f := range []struct {
			body, key string
			want      *batch.Submission
		}{{body, "key-1", first}, {measurements(item("X", 2)), "key-0", none}} {
			s, err := h.submit(f.body, f.key)
			require.NoError(t, err)
			require.True(t, s.Result.Replay)
			require.Equal(t, f.want.Result.ID, s.Result.ID)
			require.Equal(t, f.want.Result.Items, s.Result.Items)
			require.Equal(t, f.want.Result.Accepted, s.Result.Accepted)
			require.Equal(t, f.want.Result.List, s.Result.List)
			for i, x := range f.want.Result.List {
				require.Equal(t, f.want.Result.Detail(x), s.Result.Detail(s.Result.List[i]))
			}
		}
		_, err := h.submit(measurements(item("A", 1)), "key-1")
		var r *contract.APIError
		require.ErrorAs(t, err, &r)
		require.Equal(t, contract.IdempotencyKeyReused, r.Code)
		require.Len(t, h.frames(), 2)
	}
	again()
	h.close()
	h = open(t, dir) // if the response is not copied yet, it is in the main journal
	again()
	h.copyToStore()
	h.close()
	h = open(t, dir)
	again()
	other := &batch.Submission{ProductInstance: "town", Client: "town", IdempotencyKey: "key-1", Body: bytes.NewReader(zipped(body))}
	h.codes["town"] = set("A")
	require.NoError(t, h.intake.Submit(other))
	require.False(t, other.Result.Replay, "keys are scoped to their product instance")
	h.close()
}

// stopCopying ends the goroutine that copies responses, so that the test may change and compare
// what it uses.
func (h *fixture) stopCopying() {
	h.store.stop()
	<-h.store.done
}

func (h *fixture) copyToStore() {
	h.t.Helper()
	h.stopCopying()
	require.NoError(h.t, h.store.copy())
	done, _ := h.journal.Cursor(IdempotencyConsumer).Load()
	_, next := h.journal.Bounds()
	require.Equal(h.t, next, done)
}

// TestIdempotencyStoreOpensWhenDiskIsLow checks that the store opens even on a full disk, because
// only deliveries free space. Responses remain in the main journal until they can be copied.
func TestIdempotencyStoreOpensWhenDiskIsLow(t *testing.T) {
	dir := t.TempDir()
	low := func(c *Config) { c.Idempotency.Journal.MinFreeBytes = 1 << 60 }
	h := open(t, dir, low)
	body := measurements(item("A", 1))
	first, err := h.submit(body, "k")
	require.NoError(t, err)
	h.close()
	h = open(t, dir, low)
	s, err := h.submit(body, "k")
	require.NoError(t, err)
	require.True(t, s.Result.Replay)
	require.Equal(t, first.Result.ID, s.Result.ID)
	h.stopCopying()
	require.ErrorIs(t, h.store.copy(), journal.ErrDiskLow)
	h.close()

	h = open(t, dir)
	h.copyToStore()
	s, err = h.submit(body, "k")
	require.NoError(t, err)
	require.True(t, s.Result.Replay)
	h.close()
}

// TestCloseKeepsResponses checks that a response survives a restart even if the main journal cannot
// be read again and the restart follows at once.
func TestCloseKeepsResponses(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	require.NoError(t, h.store.Close())
	f := func(wantReplay bool) {
		t.Helper()
		var err error
		h.store, err = OpenIdempotencyStore(h.cfg.Idempotency, h.journal, nil)
		require.NoError(t, err)
		h.intake.idempotency = h.store
		s, err := h.submit(measurements(item("A", 1)), "k")
		require.NoError(t, err)
		require.Equal(t, wantReplay, s.Result.Replay)
	}
	f(false)
	require.NoError(t, h.store.Close())
	f(true)
}

// TestResponsesAreCopiedInOrder checks that responses that could not be copied come first in the
// next attempt: the store's journal must be in the order of expiry, because its cursor deletes
// from the start.
func TestResponsesAreCopiedInOrder(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Idempotency.Journal.MinFreeBytes = 1 << 60 })
	defer h.close()
	h.stopCopying()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = h.store.copy() // the disk is low
			}
		}
	}()
	for n := range 100 {
		_, err := h.submit(measurements(item("A", n)), fmt.Sprint(n))
		require.NoError(t, err)
	}
	close(stop)
	<-stopped
	var order []uint64
	for _, k := range h.store.fresh {
		order = append(order, k.main)
	}
	require.Len(t, order, 100)
	require.IsIncreasing(t, order)
}

func TestResponsesExpire(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	body := measurements(item("A", 1))
	_, err := h.submit(body, "k")
	require.NoError(t, err)
	h.copyToStore()
	later := time.Now().Add(59 * time.Minute)
	h.store.now = func() time.Time { return later }
	h.store.expire()
	s, err := h.submit(body, "k")
	require.NoError(t, err)
	require.True(t, s.Result.Replay)
	later = later.Add(2 * time.Minute)
	h.store.expire()
	require.Empty(t, h.store.known)
	require.Zero(t, h.store.bytes.Total())
	s, err = h.submit(body, "k")
	require.NoError(t, err)
	require.False(t, s.Result.Replay)
	h.close()
}

// TestExpiredResponseIsReplaced checks that if a key is used again after its window, before the
// old response is deleted, the new response replaces the old one and remains.
func TestExpiredResponseIsReplaced(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying()
	_, err := h.submit(measurements(item("A", 1)), "k")
	require.NoError(t, err)
	one := h.store.bytes.Total()
	later := time.Now().Add(61 * time.Minute)
	h.store.now = func() time.Time { return later }
	h.setClock(h.store.now)
	second, err := h.submit(measurements(item("B", 2)), "k")
	require.NoError(t, err)
	require.False(t, second.Result.Replay)
	require.Equal(t, one, h.store.bytes.Total())
	h.copyToStore()
	h.store.expire()
	require.Equal(t, one, h.store.bytes.Total())
	require.Len(t, h.store.order, 1)
	again, err := h.submit(measurements(item("B", 2)), "k")
	require.NoError(t, err)
	require.True(t, again.Result.Replay)
	require.Equal(t, second.Result.ID, again.Result.ID)
}

// TestVoidedResponseDoesNotHoldTheCursor checks that the response of a voided frame is not stored,
// and does not keep the cursor from moving on.
func TestVoidedResponseDoesNotHoldTheCursor(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying()
	_, err := h.submit(measurements(item("A", 1)), "kept")
	require.NoError(t, err)
	e := &durable.Entry{Data: batch.AppendFrame(nil, &batch.Batch{}, &batch.Response{Key: "voided"})}
	require.NoError(t, h.store.enqueue(e))
	require.NoError(t, e.Wait())
	require.NoError(t, h.store.copy())
	done, _ := h.journal.Cursor(IdempotencyConsumer).Load()
	require.Equal(t, e.Seq, done, "the cursor waits for the outcome")
	h.store.committed(e, durable.ErrVoided)
	h.copyToStore()
	require.Len(t, h.store.known, 1)
}

// limitResponses changes the memory limit of the idempotency store.
func (h *fixture) limitResponses(limit int64) {
	limited := fair.New(limit)
	for client := range h.store.bytes.Clients() {
		limited.Add(client, h.store.bytes.Held(client))
	}
	h.store.bytes = limited
}

// TestKeysInProgress checks that a key is in use while a batch with it is processed, for its client
// only.
func TestKeysInProgress(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Workers = 4 })
	defer h.close()
	submit := func(client, key string, body io.Reader) error {
		if apiErr := h.intake.Hold(client, key); apiErr != nil {
			return apiErr
		}
		defer h.intake.Release(client, key)
		return h.intake.Submit(&batch.Submission{ProductInstance: "city", Client: client, IdempotencyKey: key, Body: body})
	}
	body := func() io.Reader { return bytes.NewReader(zipped(measurements(item("A", 1)))) }
	started, proceed, first := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		begin := sync.OnceFunc(func() { close(started); <-proceed })
		from := body()
		first <- submit("a", "k", readerFunc(func(p []byte) (int, error) { begin(); return from.Read(p) }))
	}()
	<-started
	err := submit("a", "k", body())
	var r *contract.APIError
	require.ErrorAs(t, err, &r)
	require.Equal(t, contract.IdempotencyKeyInUse, r.Code)
	require.Positive(t, r.RetryAfter)
	require.NoError(t, submit("b", "k", body()), "the key of another client")
	require.NoError(t, submit("a", `"k"`, body()), "with quotes, it is another key")
	close(proceed)
	require.NoError(t, <-first)
	require.NoError(t, submit("a", "k", body()))
	require.ErrorAs(t, submit("a", "bad", strings.NewReader("x")), &r)
	require.NoError(t, submit("a", "bad", body()), "also after an error")
	require.Empty(t, h.store.held)
}

func TestFullStore(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	body := measurements(item("A", 1))
	_, err := h.submit(body, "known")
	require.NoError(t, err)
	h.limitResponses(1)
	_, err = h.submit(body, "known")
	require.NoError(t, err, "a known key can be retried")
	_, err = h.submit(body, "new")
	require.ErrorContains(t, err, "the idempotency store is full", "responses are not deleted early")
	require.ErrorContains(t, h.store.Full(), "the store is full")
}

// TestOneClientCannotFillTheIdempotencyStore checks that a client that has exhausted its quota
// gets 503 while there is room for others, before and after a restart.
func TestOneClientCannotFillTheIdempotencyStore(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	const greedy, next = "city\x00greedy", "city\x00next"
	try := func(client, key string) error {
		body := bytes.NewReader(zipped(measurements(item("X", 1))))
		return h.intake.Submit(&batch.Submission{ProductInstance: "city", Client: client, IdempotencyKey: key, Body: body})
	}
	submit := func(client, key string) {
		t.Helper()
		require.NoError(t, try(client, key))
	}
	submit(greedy, "0")
	require.NoError(t, h.store.Full())
	one := h.store.bytes.Total()
	limit := func(total, perClient int64) {
		h.limitResponses(total * one)
		h.store.cfg.MaxBytesPerClient = perClient * one
	}
	full := func() {
		t.Helper()
		err := try(greedy, "more")
		var r *contract.APIError
		require.ErrorAs(t, err, &r)
		require.ErrorContains(t, h.store.Full(), `with 503: "greedy"`)
		require.Equal(t, contract.ServiceUnavailable, r.Code)
		require.Contains(t, r.Description, "this client's quota in the idempotency store is exhausted: ")
		require.Positive(t, r.RetryAfter)
		submit(greedy, "0") // a known key can be retried
	}
	limit(100, 2)
	submit(greedy, "1")
	full() // max_bytes_per_client
	limit(6, 6)
	submit(greedy, "2")
	full() // it uses as much as remains free
	limit(100, 4)
	submit(greedy, "3")
	full()
	limit(8, 8)
	full()
	submit(next, "n0")
	h.close()
	h = open(t, dir)
	limit(8, 8)
	full()
	submit(next, "n1")
	limit(4, 4)
	require.ErrorContains(t, try("third", "k"), "the idempotency store is full; retry later, or send the batch without an Idempotency-Key")
	h.copyToStore()
	later := time.Now().Add(2 * time.Hour)
	h.store.now = func() time.Time { return later }
	h.store.expire()
	require.Empty(t, slices.Collect(h.store.bytes.Clients()))
	require.Zero(t, h.store.bytes.Total())
	h.close()
}

// TestRememberedResponsesAreCompressed checks that a list of rejections takes less than a fifth of
// its size in memory, and that a replay returns it unchanged, also after a restart.
func TestRememberedResponsesAreCompressed(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	items := make([]string, 10_000)
	for i := range items {
		items[i] = item(fmt.Sprintf("unknown-detector-of-a-city-%05d", i), 1)
	}
	body := measurements(items...)
	first, err := h.submit(body, "k")
	require.NoError(t, err)
	require.Equal(t, 10_000, first.Result.Len())
	plain := first.Result.Size()
	require.Less(t, h.store.bytes.Total(), int64(plain/5))
	h.copyToStore()
	h.close()
	h = open(t, dir)
	require.Less(t, h.store.bytes.Total(), int64(plain/5))
	s, err := h.submit(body, "k")
	require.NoError(t, err)
	require.True(t, s.Result.Replay)
	first.Result.Replay, first.Result.Detectors = true, nil
	require.Equal(t, first.Result, s.Result)
	h.close()
}

// TestItemsOfRejectedBodiesAreCounted checks that after any error, Items is the number of decoded
// items, which are charged to the key.
func TestItemsOfRejectedBodiesAreCounted(t *testing.T) {
	h := open(t, t.TempDir(), func(c *Config) { c.Decode.BatchLimit = 5; c.Decode.HardLimit = 9 })
	defer h.close()
	f := func(want int, code contract.Code, body []byte, key string) {
		t.Helper()
		s := &batch.Submission{ProductInstance: "city", Client: "city", IdempotencyKey: key, Body: bytes.NewReader(body)}
		var r *contract.APIError
		require.ErrorAs(t, h.intake.Submit(s), &r)
		require.Equal(t, code, r.Code)
		require.Equal(t, want, s.Result.Items)
	}
	two := strings.TrimSuffix(measurements(item("A", 1), item("X", 2)), "]}")
	f(9, contract.TooManyItems, zipped(measurements(strings.Split(strings.Repeat("1,", 10)+"1", ",")...)), "")
	f(2, contract.InvalidJSON, zipped(two), "")
	f(2, contract.InvalidJSON, zipped(two+"]} x"), "")
	f(2, contract.DuplicateField, zipped(two+`],"measurements":[]}`), "")
	whole := zipped(two + "]}")
	f(2, contract.InvalidGzip, whole[:len(whole)-1], "")
	_, err := h.submit(measurements(item("A", 1)), "k")
	require.NoError(t, err)
	f(2, contract.IdempotencyKeyReused, whole, "k")
	f(0, contract.InvalidGzip, nil, "")
}

func TestConfigBounds(t *testing.T) {
	require.NoError(t, DefaultConfig().Check())
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Check(), want)
	}
	f("max_body_bytes", func(c *Config) { c.MaxBodyBytes = 1 })
}

func TestDiskErrors(t *testing.T) {
	require.ErrorIs(t, diskError(durable.ErrUnknown), batch.ErrNoResponse)
	require.ErrorIs(t, diskError(errors.New("another error")), batch.ErrNoResponse)
	var r *contract.APIError
	require.ErrorAs(t, diskError(durable.ErrVoided), &r)
	require.Equal(t, contract.ServiceUnavailable, r.Code)
	require.ErrorAs(t, diskError(durable.ErrTooLarge), &r)
	require.Equal(t, contract.BodyTooLarge, r.Code)
}

func TestJournalErrors(t *testing.T) {
	f := func(err error, code contract.Code, after time.Duration) {
		t.Helper()
		r := journalError(fmt.Errorf("%w: dial tcp 10.0.0.7:9092: connection refused", err))
		require.Equal(t, code, r.Code)
		require.NotContains(t, r.Description, "10.0.0.7", "clients must not see what the operators' network looks like")
		require.Equal(t, after, r.RetryAfter)
	}
	f(durable.ErrBusy, contract.ServiceUnavailable, time.Second)
	f(durable.ErrFull, contract.ServiceUnavailable, 5*time.Second)
	f(journal.ErrDiskLow, contract.ServiceUnavailable, 5*time.Second)
	f(errors.New("cannot write to the log in Kafka"), contract.ServiceUnavailable, 5*time.Second)
	f(durable.ErrTooLarge, contract.BodyTooLarge, 0) // a retry would fail again
}
