package routing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

var (
	errItem  = errors.New("the item fails")
	errPanic = errors.New("the item panics")
)

// gated is a conversion whose items return the errors that the test sends to gate.
type gated struct {
	*conversion
	gate chan error
}

func newGated(items int) *gated {
	b := &gated{conversion: &conversion{items: make([]item, items)}, gate: make(chan error)}
	b.step = func(int) error {
		err := <-b.gate
		if errors.Is(err, errPanic) {
			panic(err)
		}
		return err
	}
	return b
}

// failed returns the errors of the failed items.
func (b *gated) failed() map[int]error {
	all := map[int]error{}
	for i, it := range b.items {
		if it.err != nil {
			all[i] = it.err
		}
	}
	return all
}

// modelJob and model implement the rules of contract 3.4 in the simplest way: one list, one step at
// a time.
type modelJob struct {
	*gated
	owner        string
	bytes        int64 // at the start; errors of items add to the size
	p            progress
	queued, done time.Time
}

func (j *modelJob) active() bool {
	return j.p.status == queuing || j.p.status == running || j.p.status == stopping
}

func (j *modelJob) end(s status) {
	j.p.status, j.done, j.p.elapsed = s, time.Now(), time.Since(j.queued)
}

// stopped ends a job that may have items left.
func (j *modelJob) stopped() {
	if j.p.remaining == 0 {
		j.end(succeeded)
		return
	}
	j.p.failed, j.p.remaining = j.p.failed+j.p.remaining, 0
	j.end(failed)
}

type model struct {
	cfg  JobsConfig
	all  []*modelJob // known jobs, oldest first
	wait []*modelJob
	busy []*modelJob // jobs that workers are processing
}

func without(list []*modelJob, j *modelJob) []*modelJob {
	return slices.DeleteFunc(slices.Clone(list), func(x *modelJob) bool { return x == j })
}

func (m *model) bytes() (n int64) {
	for _, j := range m.all {
		if j.p.status != deleted {
			n += j.bytes
		}
	}
	return n
}

func (m *model) find(owner, id string) *modelJob {
	for _, j := range m.all {
		if j.owner == owner && j.p.id == id {
			return j
		}
	}
	return nil
}

func (m *model) get(owner, id string) progress {
	j := m.find(owner, id)
	if j == nil {
		return progress{id: id, status: unknown}
	}
	p := j.p
	if j.active() {
		p.elapsed = time.Since(j.queued)
	}
	return p
}

// dispatch assigns waiting jobs to idle workers.
func (m *model) dispatch() {
	for len(m.busy) < m.cfg.Workers && len(m.wait) > 0 {
		j := m.wait[0]
		m.wait = m.wait[1:]
		if j.p.remaining == 0 {
			j.end(succeeded)
			continue
		}
		j.p.status = running
		m.busy = append(m.busy, j)
	}
}

// finished ends the current item of a job.
func (m *model) finished(j *modelJob, err error) {
	if j.active() {
		j.p.remaining--
		if err == nil {
			j.p.successful++
		} else {
			j.p.failed++
		}
		switch {
		case j.p.remaining > 0 && j.p.status == stopping:
			j.stopped()
		case j.p.remaining > 0:
			return
		case j.p.successful == 0:
			j.end(failed)
		default:
			j.end(succeeded)
		}
	}
	m.busy = without(m.busy, j)
	m.dispatch()
}

func (m *model) expire() {
	for _, j := range m.all {
		if !j.active() && time.Since(j.done) >= m.cfg.Keep {
			m.all = without(m.all, j)
		}
	}
}

// start adds a job if there is room, and reports whether there was.
func (m *model) start(j *modelJob) bool {
	own, ownBytes, kept, deletedJobs := 0, int64(0), 0, []*modelJob(nil)
	for _, x := range m.all {
		if x.p.status == deleted {
			deletedJobs = append(deletedJobs, x)
			continue
		}
		kept++
		if x.owner == j.owner {
			own++
			ownBytes += x.bytes
		}
	}
	bytes := j.bytes
	left, bytesLeft := m.cfg.Max-kept-1, m.cfg.MaxBytes-m.bytes()-bytes // with this job
	switch {
	case left < 0, own > 0 && own+1 > left,
		bytesLeft < 0, ownBytes > 0 && ownBytes+bytes > bytesLeft, bytes > m.cfg.MaxBytes/2:
		return false
	}
	if len(m.all) >= m.cfg.Max {
		m.all = without(m.all, deletedJobs[0])
	}
	m.all = append(m.all, j)
	m.wait = append(m.wait, j)
	m.dispatch()
	return true
}

func TestJobsFollowTheModel(t *testing.T) {
	seen := map[status]int{}
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { playModel(t, rand.New(rand.NewPCG(seed, 1)), seen) })
	}
	for _, s := range []status{queuing, running, stopping, succeeded, failed, deleted, unknown} {
		require.NotZero(t, seen[s], "%s never occurred", s)
	}
}

// playModel performs random actions of clients and workers, and compares everything that clients
// can see after each step.
func playModel(t *testing.T, r *rand.Rand, seen map[status]int) {
	cfg := JobsConfig{Workers: 1 + r.IntN(3), Max: 3 + r.IntN(6), MaxBytes: 5 * itemBytes, Keep: 20 * time.Millisecond}
	table, m := newJobs(cfg, zerolog.Nop()), &model{cfg: cfg}
	var made []*modelJob
	defer func() {
		for _, j := range made {
			close(j.gate)
		}
		table.close()
		requireEmpty(t, table)
	}()
	owners := []string{"a", "b"}
	for range 120 {
		owner := owners[r.IntN(2)]
		id := "unknown"
		if len(made) > 0 {
			id = made[max(0, len(made)-1-r.IntN(8))].p.id
		}
		switch r.IntN(8) {
		case 0, 1:
			made = append(made, startBoth(t, table, m, owner, r)...)
		case 2, 3, 4:
			if len(m.busy) > 0 {
				j := m.busy[r.IntN(len(m.busy))]
				err := []error{nil, errItem, errPanic}[r.IntN(3)]
				j.gate <- err
				if errors.Is(err, errPanic) {
					err = errUnexpected
				}
				m.finished(j, err)
			}
		case 5:
			if j := m.find(owner, id); j != nil && j.p.status == running {
				j.p.status = stopping
			} else if j != nil && j.p.status == queuing {
				j.stopped()
				m.wait = without(m.wait, j)
			}
			require.Equal(t, m.get(owner, id), table.stop(owner, id))
		case 6:
			if j := m.find(owner, id); j != nil {
				if j.active() {
					j.end(deleted)
				}
				j.p.status = deleted
				m.wait = without(m.wait, j)
			}
			require.Equal(t, m.get(owner, id), table.delete(owner, id))
		case 7:
			fetchBoth(t, table, m, owner, id)
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		m.expire()
		for _, j := range made {
			for _, owner := range owners {
				want := m.get(owner, j.p.id)
				seen[want.status]++
				require.Equal(t, want, table.get(owner, j.p.id))
			}
		}
		known, bytes := held(table)
		require.Equal(t, m.bytes(), bytes)
		require.Equal(t, len(m.all), known)
	}
}

func held(table *jobs) (known int, bytes int64) {
	table.mu.Lock()
	defer table.mu.Unlock()
	return len(table.byID), table.bytes.Total()
}

func requireEmpty(t *testing.T, table *jobs) {
	t.Helper()
	known, bytes := held(table)
	require.Zero(t, known)
	require.Zero(t, bytes)
}

func startBoth(t *testing.T, table *jobs, m *model, owner string, r *rand.Rand) []*modelJob {
	work := newGated(r.IntN(4))
	j := &modelJob{gated: work, owner: owner, bytes: work.size(), queued: time.Now()}
	got, err := table.start(owner, work.conversion)
	j.p = progress{id: got.id, status: queuing, remaining: work.len()}
	if !m.start(j) {
		var full *failure
		require.ErrorAs(t, err, &full)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, progress{id: got.id, status: queuing, remaining: work.len()}, got)
	require.NotEmpty(t, got.id)
	return []*modelJob{j}
}

func always(*conversion, int) error { return nil }

func fetchBoth(t *testing.T, table *jobs, m *model, owner, id string) {
	want := m.get(owner, id)
	got, work, err := table.fetch(owner, id, always)
	require.NoError(t, err)
	require.Equal(t, want, got)
	j := m.find(owner, id)
	switch want.status {
	case succeeded, failed:
		require.Same(t, j.conversion, work)
		require.LessOrEqual(t, want.done(), j.len())
		m.all = without(m.all, j)
	default:
		require.Nil(t, work)
	}
}

// TestFailedItemsKeepTheirErrors checks that a failed item reports why, and that the other items
// are processed, even after a panic.
func TestFailedItemsKeepTheirErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
		defer table.close()
		work := newGated(4)
		p, err := table.start("a", work.conversion)
		require.NoError(t, err)
		for _, err := range []error{nil, errItem, errPanic, nil} {
			work.gate <- err
		}
		synctest.Wait()
		p, fetched, err := table.fetch("a", p.id, always)
		require.NoError(t, err)
		require.Same(t, work.conversion, fetched)
		require.Equal(t, succeeded, p.status)
		require.Equal(t, map[int]error{1: errItem, 2: errUnexpected}, work.failed())
		require.Equal(t, 2, p.failed)
	})
}

// TestFailedFetchKeepsJob checks that a job can be watched and fetched again if its response could
// not be sent, which has not told the client that the job has ended.
func TestFailedFetchKeepsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
		defer table.close()
		two := counted(2)
		p, err := table.start("a", two)
		require.NoError(t, err)
		synctest.Wait()
		_, work, err := table.fetch("a", p.id, func(got *conversion, done int) error {
			require.Same(t, two, got)
			require.Equal(t, 2, done)
			return errItem
		})
		require.ErrorIs(t, err, errItem)
		require.Nil(t, work)
		begin := time.Now()
		require.Equal(t, succeeded, table.watch("a", p.id, time.Second, 10*time.Second).status)
		require.Equal(t, begin, time.Now(), "the client has not seen the final status")
		p, work, err = table.fetch("a", p.id, always)
		require.NoError(t, err)
		require.Equal(t, succeeded, p.status)
		require.Same(t, two, work)
	})
}

// TestConversionSize checks that the charged size of a job is at least its real size, even if
// most of it is not coordinates.
func TestConversionSize(t *testing.T) {
	requireSize := func(n int, e xroute.EncodedGeometry, fails bool) {
		t.Helper()
		c := &conversion{items: make([]item, n)}
		before := heap()
		for i := range c.items {
			g, f := read(e, geo.DefaultLimits())
			if require.Equal(t, fails, f != nil); fails {
				c.items[i].err = f
			}
			c.items[i].geometry = g
		}
		require.LessOrEqual(t, int64(heap()-before), c.size(), "%.100s", *e.Encoded().WKT)
		runtime.KeepAlive(e)
	}
	f := func(member string, n int) {
		t.Helper()
		text := "GEOMETRYCOLLECTION (" + member + strings.Repeat(", "+member, n-1) + ")"
		requireSize(1, asWKT(&xroute.GeometryCollection{}, text), false)
	}
	f("POINT (1 2)", 20_000)
	f("POINT EMPTY", 20_000)
	f("MULTIPOLYGON EMPTY", 20_000)
	f("MULTILINESTRING ((1 2, 3 4))", 20_000)
	f("GEOMETRYCOLLECTION (GEOMETRYCOLLECTION EMPTY)", 20_000)
	requireSize(20_000, asWKT(&xroute.Point{}, ""), true)
	requireSize(20_000, asWKT(&xroute.Point{}, strings.Repeat("\u00a0", 100)), true) // escaped in the error
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestJobLimits checks the errors for a job of 512 bytes of client a, which already has one. Client
// b gets room as long as anything is left.
func TestJobLimits(t *testing.T) {
	f := func(cfg JobsConfig, want, wantB string) {
		t.Helper()
		cfg.Workers, cfg.Keep = 1, time.Hour
		table := newJobs(cfg, zerolog.Nop())
		blocked := newGated(1)
		defer table.close()
		defer close(blocked.gate)
		_, err := table.start("a", blocked.conversion)
		require.NoError(t, err)
		_, err = table.start("a", newGated(1).conversion)
		require.ErrorContains(t, err, want)
		_, err = table.start("b", newGated(3).conversion)
		require.ErrorContains(t, err, "several jobs")
		_, err = table.start("b", newGated(1).conversion)
		if wantB == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, wantB)
		}
	}
	const own, ownBytes = "this client has 1 jobs and may not have more", "the jobs of this client use 512 bytes and may not use 512 more"
	f(JobsConfig{Max: 1, MaxBytes: 4 * itemBytes}, own, "all 1 job slots")
	f(JobsConfig{Max: 2, MaxBytes: 4 * itemBytes}, own, "")
	f(JobsConfig{Max: 9, MaxBytes: 4*itemBytes - 1}, ownBytes, "")
	f(JobsConfig{Max: 9, MaxBytes: 3 * itemBytes}, ownBytes, "")
}

// TestWatch checks when a watch returns (contract 3.4).
func TestWatch(t *testing.T) {
	// f watches a job of two items for 10 s, with progress at most every second, and requires a
	// response with the status want after the given time. f calls event while the watch waits.
	f := func(what string, after time.Duration, want status, event func(table *jobs, id string, work *gated)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
			defer table.close()
			work := newGated(2)
			defer close(work.gate)
			p, err := table.start("a", work.conversion)
			require.NoError(t, err)
			synctest.Wait()
			begin := time.Now()
			response := make(chan progress)
			go func() { response <- table.watch("a", p.id, time.Second, 10*time.Second) }()
			synctest.Wait()
			event(table, p.id, work)
			got := <-response
			require.Equal(t, after, time.Since(begin), what)
			require.Equal(t, want, got.status, what)
		})
	}
	f("nothing happens", 10*time.Second, running, func(*jobs, string, *gated) {})
	f("progress at once", time.Second, running, func(_ *jobs, _ string, w *gated) { w.gate <- nil })
	f("progress later", 4*time.Second, running, func(_ *jobs, _ string, w *gated) {
		time.Sleep(3500 * time.Millisecond)
		w.gate <- nil
	})
	f("the end at once", 0, succeeded, func(_ *jobs, _ string, w *gated) { w.gate <- nil; w.gate <- nil })
	f("the end later", 3500*time.Millisecond, failed, func(_ *jobs, _ string, w *gated) {
		time.Sleep(3500 * time.Millisecond)
		w.gate <- errItem
		w.gate <- errItem
	})
	f("a stop", 300*time.Millisecond, failed, func(table *jobs, id string, w *gated) {
		time.Sleep(100 * time.Millisecond)
		table.stop("a", id)
		time.Sleep(200 * time.Millisecond)
		w.gate <- nil
	})
	f("a delete", 0, deleted, func(table *jobs, id string, _ *gated) { table.delete("a", id) })
	f("the shutdown", 200*time.Millisecond, running, func(table *jobs, _ string, _ *gated) {
		time.Sleep(200 * time.Millisecond)
		table.drain()
	})
}

// TestWatchReturnsImmediately checks that a watch returns a final status that is new to the client
// without a delay.
func TestWatchReturnsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
		defer table.close()
		begin := time.Now()
		p, err := table.start("a", newGated(0).conversion)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, succeeded, table.watch("a", p.id, time.Second, 10*time.Second).status)
		require.Equal(t, begin, time.Now())
	})
}

// TestWatchDoesNotSpin checks that a status that the client already knows is repeated only after
// the interval.
func TestWatchDoesNotSpin(t *testing.T) {
	f := func(want status, interval, timeout, after time.Duration, before func(table *jobs, id string)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
			defer table.close()
			p, err := table.start("a", counted(2))
			require.NoError(t, err)
			synctest.Wait()
			before(table, p.id)
			for range 3 {
				begin := time.Now()
				require.Equal(t, want, table.watch("a", p.id, interval, timeout).status)
				require.Equal(t, after, time.Since(begin))
			}
		})
	}
	watched := func(table *jobs, id string) { table.watch("a", id, time.Second, time.Minute) }
	f(succeeded, time.Second, 10*time.Second, time.Second, watched)
	f(succeeded, time.Second, time.Millisecond, time.Millisecond, watched)
	f(deleted, time.Second, 10*time.Second, time.Second, func(table *jobs, id string) { table.delete("a", id) })
	f(unknown, time.Second, 10*time.Second, time.Second, func(table *jobs, id string) { _, _, _ = table.fetch("a", id, always) })
	f(succeeded, time.Second, 10*time.Second, minInterval, func(table *jobs, id string) { watched(table, id); table.drain() })
	f(succeeded, time.Second, time.Millisecond, time.Millisecond, func(table *jobs, id string) { watched(table, id); table.drain() })
}

// TestStopIsTransitional checks that STOPPING lasts until the current item is done. Then the job
// has succeeded if that was the last item; otherwise it has failed, and so have the remaining
// items.
func TestStopIsTransitional(t *testing.T) {
	f := func(items int, want status, wantFailed map[int]error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			table := newJobs(DefaultConfig().Jobs, zerolog.Nop())
			defer table.close()
			work := newGated(items)
			defer close(work.gate)
			p, err := table.start("a", work.conversion)
			require.NoError(t, err)
			work.gate <- nil
			synctest.Wait()
			require.Equal(t, stopping, table.stop("a", p.id).status)
			require.Equal(t, stopping, table.stop("a", p.id).status)
			work.gate <- nil
			synctest.Wait()
			p, _, err = table.fetch("a", p.id, always)
			require.NoError(t, err)
			require.Equal(t, want, p.status)
			require.Equal(t, []int{2, items - 2, 0}, []int{p.successful, p.failed, p.remaining})
			require.Equal(t, wantFailed, work.failed())
		})
	}
	f(2, succeeded, map[int]error{})
	f(4, failed, map[int]error{2: errStopped, 3: errStopped})
}

// TestConcurrentClients checks that with several clients and workers, the status of a job never
// goes back, clients see only their own jobs, and nothing is left at the end.
func TestConcurrentClients(t *testing.T) {
	cfg := JobsConfig{Workers: 3, Max: 12, MaxBytes: 1 << 20, Keep: 2 * time.Millisecond}
	table := newJobs(cfg, zerolog.Nop())
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() { useJobs(t, table, c) })
	}
	clients.Wait()
	table.close()
	requireEmpty(t, table)
}

// rank is the order of the statuses of a job.
var rank = map[status]int{queuing: 0, running: 1, stopping: 2, succeeded: 3, failed: 3, deleted: 4, unknown: 5}

// useJobs performs random operations as one client.
func useJobs(t *testing.T, table *jobs, c int) {
	owner, r := fmt.Sprint("client ", c), rand.New(rand.NewPCG(uint64(c), 7))
	last := map[string]progress{}
	note := func(p progress) {
		before := last[p.id]
		if rank[p.status] < rank[before.status] || p.done() < before.done() && p.status != unknown {
			t.Errorf("got %+v after %+v, want progress only", p, before)
		}
		last[p.id] = p
	}
	var ids []string
	for range 400 {
		if p, err := table.start(owner, counted(r.IntN(30))); err == nil {
			ids = append(ids, p.id)
			note(p)
		}
		if len(ids) == 0 {
			continue
		}
		id := ids[max(0, len(ids)-1-r.IntN(5))]
		switch r.IntN(5) {
		case 0:
			note(table.stop(owner, id))
		case 1:
			note(table.delete(owner, id))
		case 2:
			p, work, _ := table.fetch(owner, id, always)
			note(p)
			if work != nil {
				last[id] = progress{id: id, status: unknown}
				if p.status == succeeded && p.done() != work.len() {
					t.Errorf("got %+v, want all %d items done", p, work.len())
				}
			}
		case 3:
			note(table.watch(owner, id, time.Millisecond, 2*time.Millisecond))
		case 4:
			if p := table.get("other", id); p.status != unknown {
				t.Errorf("got %+v for another client, want status UNKNOWN", p)
			}
			note(table.get(owner, id))
		}
	}
}

// counted returns a conversion whose items end immediately; every third fails.
func counted(items int) *conversion {
	return &conversion{items: make([]item, items), step: func(i int) error {
		if i%3 == 2 {
			return errItem
		}
		return nil
	}}
}
