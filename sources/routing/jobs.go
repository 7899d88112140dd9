package routing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/fair"
	"trafficd/schemas/xroute"
)

// status is the status of a job (contract 3.4 and 5.4):
//
//	start ─▶ QUEUING ─▶ RUNNING ─▶ SUCCEEDED   at least one item succeeded, or the job had none
//	            │       │    └───▶ FAILED      no item succeeded
//	            │    STOPPING ───▶ FAILED      by stopJob, also if QUEUING: remaining items fail
//	            │       └────────▶ SUCCEEDED   if no item remained
//	            └─ any status ───▶ DELETED     by deleteJob
//
// UNKNOWN means that the job was fetched, has expired, belongs to another client, or never existed.
type status = xroute.JobStatus

const (
	queuing   = xroute.StatusQueuing
	running   = xroute.StatusRunning
	stopping  = xroute.StatusStopping
	succeeded = xroute.StatusSucceeded
	failed    = xroute.StatusFailed
	deleted   = xroute.StatusDeleted
	unknown   = xroute.StatusUnknown
)

// jobs runs conversions in the background and keeps them in memory until they are fetched (contract
// 3.4).
type jobs struct {
	cfg     JobsConfig
	replica string // prefix of the IDs of this replica's jobs
	log     zerolog.Logger
	drained context.Context // done after drain
	drain   func()
	workers sync.WaitGroup

	mu     sync.Mutex
	byID   map[string]*job
	queue  []*job     // jobs in byID that wait for a worker, in order
	change *sync.Cond // signals that queue or closed has changed
	closed bool       // if true, the workers stop after their current item

	slots *fair.Shares // jobs in byID that are not deleted
	bytes *fair.Shares // memory used by all jobs in byID
}

// job is a conversion with its state. jobs.mu guards the second group of fields.
type job struct {
	owner  string
	queued time.Time
	ended  chan struct{} // closed when the job ends

	state  progress
	seen   status      // last status reported to the owner
	work   *conversion // nil once deleted
	bytes  int64       // memory charged for work
	expiry *time.Timer // set when the job ends
}

// progress is what a client sees of a job.
type progress struct {
	id                            string
	status                        status
	elapsed                       time.Duration // from queuing to the end
	successful, failed, remaining int
}

func (p progress) done() int { return p.successful + p.failed }

// newJobs starts the workers; close stops them.
func newJobs(cfg JobsConfig, log zerolog.Logger) *jobs {
	digest := sha256.Sum256([]byte(cfg.Replica))
	t := &jobs{
		cfg: cfg, replica: base32.StdEncoding.EncodeToString(digest[:])[:replicaLen], log: log, byID: map[string]*job{},
		slots: fair.New(int64(cfg.Max)), bytes: fair.New(cfg.MaxBytes),
	}
	t.change = sync.NewCond(&t.mu)
	t.drained, t.drain = context.WithCancel(context.Background())
	jobsLimit.Set(float64(cfg.Max))
	jobBytesLimit.Set(float64(cfg.MaxBytes))
	for range cfg.Workers {
		t.workers.Go(t.run)
	}
	return t
}

// replicaLen is the length of the part of a job ID that identifies the replica. The rest is random.
const replicaLen = 6

func (t *jobs) newID() string { return t.replica + rand.Text() }

// isForeign reports whether another replica issued id.
func (t *jobs) isForeign(id string) bool {
	_, err := base32.StdEncoding.DecodeString(id) // fails for most IDs that no replica issued, such as a UUID
	return err == nil && len(id) == len(t.newID()) && id[:replicaLen] != t.replica
}

// close stops the workers and discards all jobs.
func (t *jobs) close() {
	t.drain()
	t.mu.Lock()
	t.closed = true
	t.change.Broadcast()
	t.mu.Unlock()
	t.workers.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.byID {
		t.forget(j)
	}
}

// start queues a conversion. The error is a *failure.
func (t *jobs) start(owner string, work *conversion) (progress, error) {
	j := &job{owner: owner, queued: time.Now(), ended: make(chan struct{}), work: work, bytes: work.size()}
	j.state = progress{id: t.newID(), status: queuing, remaining: work.len()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkLimits(owner, j.bytes); err != nil {
		jobsRejected.Inc()
		return progress{}, err
	}
	t.byID[j.state.id] = j
	t.charge(j, 1, j.bytes)
	jobsStarted.Inc()
	t.queue = append(t.queue, j)
	t.change.Signal()
	return j.report(), nil
}

func (t *jobs) get(owner, id string) progress {
	return t.withJob(owner, id, func(*job) {})
}

// withJob calls f for the owner's job with this ID and returns the job's progress. If the owner has
// no such job, withJob returns the status unknown without calling f.
func (t *jobs) withJob(owner, id string, f func(j *job)) progress {
	p, _ := t.tryJob(owner, id, func(j *job) error { f(j); return nil })
	return p
}

// tryJob is like withJob, but if f fails, it returns the error, and the owner has not seen the
// status of the job.
func (t *jobs) tryJob(owner, id string, f func(j *job) error) (progress, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.byID[id]
	if j == nil || j.owner != owner {
		return progress{id: id, status: unknown}, nil
	}
	if err := f(j); err != nil {
		return progress{}, err
	}
	return j.report(), nil
}

// stop stops a job after the current item. Finished items can still be fetched.
func (t *jobs) stop(owner, id string) progress {
	return t.withJob(owner, id, func(j *job) {
		switch j.state.status {
		case queuing:
			t.finish(j)
		case running:
			j.state.status = stopping
		}
	})
}

// errStopped is the error of the items that remained when a job was stopped (contract 3.4).
var errStopped = &failure{class: business, message: "stopped before this geometry was converted"}

// finish ends a job whose last item is finished or that was stopped. Any remaining items fail.
func (t *jobs) finish(j *job) {
	end := succeeded
	if j.state.remaining > 0 || j.state.failed > 0 && j.state.successful == 0 {
		end = failed
	}
	for ; j.state.remaining > 0; j.state.remaining-- {
		j.work.fail(j.state.done(), errStopped)
		j.state.failed++
	}
	t.end(j, end)
}

// delete deletes the work of a job. The job's ID remains known until the job expires or another job
// needs its slot.
func (t *jobs) delete(owner, id string) progress {
	return t.withJob(owner, id, func(j *job) {
		if j.active() {
			t.end(j, deleted)
		}
		j.state.status = deleted
		t.discharge(j)
	})
}

// fetch returns the work of a job that has ended, and discards the job. It first calls ready, which
// reserves the memory for the response; if ready fails, fetch returns its error and keeps the job.
// If the job has not ended, was deleted or does not exist, work and err are nil.
func (t *jobs) fetch(owner, id string, ready func(work *conversion, done int) error) (p progress, work *conversion, err error) {
	p, err = t.tryJob(owner, id, func(j *job) error {
		if j.active() || j.work == nil {
			return nil
		}
		if err := ready(j.work, j.state.done()); err != nil {
			return err
		}
		work = j.work
		t.forget(j)
		return nil
	})
	return p, work, err
}

// watch waits until a job ends, but no longer than the timeout (contract 3.4). Once per interval,
// it checks the progress and returns if there is any. If the owner already knows the final status,
// watch waits for one interval, so that a client that watches in a loop does not spin. For the same
// reason, a watch after drain waits too, for at most minInterval.
func (t *jobs) watch(owner, id string, interval, timeout time.Duration) progress {
	var ended <-chan struct{} // nil if the job has ended or is unknown
	known := true             // the owner has seen the status
	before := t.withJob(owner, id, func(j *job) {
		if j.active() {
			ended = j.ended
		} else {
			known = j.seen == j.state.status
		}
	})
	if !known {
		return before
	}
	if ended == nil {
		timeout = min(interval, timeout)
	}
	drained := t.drained.Done()
	if t.drained.Err() != nil {
		timeout, drained = min(timeout, minInterval), nil
	}
	limit, tick := time.NewTimer(timeout), time.NewTicker(interval)
	defer limit.Stop()
	defer tick.Stop()
	for {
		select {
		case <-ended:
		case <-limit.C:
		case <-drained:
		case <-tick.C:
			now := t.get(owner, id)
			now.elapsed = before.elapsed
			if now == before {
				continue
			}
		}
		return t.get(owner, id)
	}
}

// run processes jobs until close is called.
func (t *jobs) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(t.queue) == 0 && !t.closed {
			t.change.Wait()
		}
		if t.closed {
			return
		}
		j := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		t.work(j)
	}
}

// work processes the items of a job until it ends or is stopped. The caller must hold jobs.mu,
// which work unlocks while it processes an item.
func (t *jobs) work(j *job) {
	work := j.work
	for i := 0; i < work.len() && j.active() && j.state.status != stopping && !t.closed; i++ {
		j.state.status = running
		t.mu.Unlock()
		err := t.do(j, work, i)
		if err != nil {
			work.fail(i, err)
		}
		t.mu.Lock()
		switch {
		case !j.active(): // deleted while the item was processed
			return
		case err == nil:
			j.state.successful++
		default:
			j.state.failed++
		}
		j.state.remaining--
	}
	if j.active() && !t.closed {
		t.finish(j)
	}
}

// do processes one item. If it panics, only that item fails.
func (t *jobs) do(j *job, work *conversion, i int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Inc()
			t.log.Error().Str("job", j.state.id).Int("item", i).Str("panic", fmt.Sprint(p)).Str("stack", string(debug.Stack())).
				Msg("panic in an item of a job: the item failed, and the job continues")
			err = errUnexpected
		}
	}()
	return work.do(i)
}

// end sets the final status of a job and keeps its result for cfg.Keep.
func (t *jobs) end(j *job, s status) {
	t.queue = slices.DeleteFunc(t.queue, func(q *job) bool { return q == j })
	j.state.elapsed = time.Since(j.queued)
	j.state.status = s
	close(j.ended)
	jobsEnded.WithLabelValues(string(s)).Inc()
	j.expiry = time.AfterFunc(t.cfg.Keep, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.byID[j.state.id] == j {
			if j.work != nil { // not deleted
				jobsExpired.Inc()
			}
			t.forget(j)
		}
	})
}

func (t *jobs) forget(j *job) {
	if j.expiry != nil {
		j.expiry.Stop()
	}
	delete(t.byID, j.state.id)
	t.discharge(j)
}

// discharge discards the work of a job and frees the job's slot and memory, unless that was done.
func (t *jobs) discharge(j *job) {
	if j.work != nil {
		t.charge(j, -1, -j.bytes)
		j.work, j.bytes = nil, 0
	}
	jobsKept.Set(float64(len(t.byID)))
}

func (t *jobs) charge(j *job, slots, bytes int64) {
	t.slots.Add(j.owner, slots)
	t.bytes.Add(j.owner, bytes)
	jobBytes.Set(float64(t.bytes.Total()))
	jobsKept.Set(float64(len(t.byID)))
}

// checkLimits returns a *failure if a limit does not allow another job. If necessary, it discards
// the oldest deleted job to make room.
func (t *jobs) checkLimits(owner string, bytes int64) error {
	full := func(format string, args ...any) error {
		return &failure{class: unforeseen, message: "cannot accept another job: " + fmt.Sprintf(format, args...)}
	}
	const advice = "fetch or delete one that has ended, or try again later"
	cfg := t.cfg
	switch slots := t.slots.Check(owner, 1); {
	case bytes > cfg.MaxBytes/2: // waiting does not help
		return tooMany(fmt.Sprintf("the job needs %d bytes, but a client's jobs may use only %d in total: split the geometries into several jobs",
			bytes, cfg.MaxBytes/2))
	case slots == fair.Exceeded:
		return full("this client has %d jobs and may not have more: %s", t.slots.Held(owner), advice)
	case slots == fair.Full:
		return full("all %d job slots are in use: try again later", cfg.Max)
	case bytes > t.bytes.Free():
		return full("all jobs together use %d of the %d bytes allowed: try again later", t.bytes.Total(), cfg.MaxBytes)
	case t.bytes.Check(owner, bytes) != fair.Granted:
		return full("the jobs of this client use %d bytes and may not use %d more: %s", t.bytes.Held(owner), bytes, advice)
	}
	if len(t.byID) >= cfg.Max {
		t.forget(t.oldestDeleted())
	}
	return nil
}

func (t *jobs) oldestDeleted() (oldest *job) {
	for _, j := range t.byID {
		if j.state.status == deleted && (oldest == nil || j.queued.Before(oldest.queued)) {
			oldest = j
		}
	}
	return oldest
}

func (j *job) active() bool { return !j.state.status.Ended() }

// report returns the progress for a response to the owner, who has then seen the status.
func (j *job) report() progress {
	j.seen = j.state.status
	p := j.state
	if j.active() {
		p.elapsed = time.Since(j.queued)
	}
	return p
}
