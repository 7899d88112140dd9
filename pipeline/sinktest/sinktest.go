// Package sinktest is the test that every sink passes: it delivers through a sink as the delivery
// loop does, with every interruption that pipeline.Sink allows, and counts what the store has.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
)

// Row is a measurement in a store.
type Row struct {
	Batch          batch.ID
	Index          uint32
	Detector, Type string
	From, To       int64 // Unix nanoseconds
	Value          float64
}

// Store is an empty store, and how the sink under test writes to it.
type Store struct {
	Open func(t testing.TB) pipeline.Sink // a sink of a restarted daemon; its timeouts are a second or so, unless that is too short for the store
	Read func(t testing.TB) []Row         // everything in the store, in any order: a row twice if it was stored twice

	// Break makes the store unreachable, and mend makes it reachable again with what it had. An
	// attempt in progress fails; it may have stored any part of the block.
	Break func(t testing.TB) (mend func())

	// Reject makes the store permanently reject the rows of a detector. It is nil for a store that
	// accepts every row.
	Reject func(t testing.TB, detector string)
}

// Run tests a sink. It calls open for each test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	test := func(name string, f func(*run)) {
		t.Run(name, func(t *testing.T) {
			r := &run{t: t, Store: open(t), random: rand.New(rand.NewPCG(1, 2))}
			r.restart()
			f(r)
		})
	}
	test("each row once", eachRowOnce)
	test("same plan and rows again", again)
	test("nil and empty plan and state", nilAndEmpty)
	test("restarted between plan and delivery", restarted)
	test("killed at any point", killed)
	test("store away at Plan", awayAtPlan)
	test("store away at Deliver", awayAtDeliver)
	test("store away during Deliver", awayDuringDeliver)
	test("store away between Plan and Deliver", awayBetween)
	test("store away when idle", awayWhenIdle)
	test("halving", halving)
}

func eachRowOnce(r *run) {
	for n := range 4 {
		r.add(1+n, 1+100*n)
	}
	r.deliverAll()
}

func again(r *run) {
	r.add(2, 50)
	rows, plan := r.plan()
	for n := range 6 { // the daemon's cursor was not saved
		r.succeed(plan, rows)
		if n%2 == 0 {
			r.restart()
		}
	}
	r.check()
}

// nilAndEmpty checks that an empty state and plan mean the same as nil, because the delivery loop
// may save either.
func nilAndEmpty(r *run) {
	for range 3 {
		r.add(1, 20)
		rows, plan := r.plan()
		if len(plan) == 0 {
			r.restart()
			r.succeed([]byte{}, rows)
			r.restart()
			r.succeed(nil, rows)
		}
		r.succeed(plan, rows)
		if len(r.state) == 0 {
			r.state = nil
		}
		r.done(rows.Rows())
	}
	r.deliverAll()
}

func restarted(r *run) {
	for range 3 {
		r.add(2, 30)
		rows, plan := r.plan()
		r.restart()
		r.succeed(plan, rows)
		r.done(rows.Rows())
	}
	r.deliverAll()
}

// killed cancels attempts after random times, up to twice as long as one takes, and continues with
// a new sink. Half of the attempts that succeed are repeated too, as after a kill before the cursor
// was saved.
func killed(r *run) {
	r.add(1, 300)
	took := r.deliverAll()
	for range 30 {
		r.add(3, 100)
		rows, plan := r.plan()
		ctx, kill := context.WithTimeout(r.t.Context(), time.Duration(r.random.Int64N(2*int64(took))))
		state, err := r.sink.Deliver(ctx, plan, rows)
		kill()
		r.restart()
		if err == nil && r.random.IntN(2) == 0 {
			r.state = state
			r.done(rows.Rows())
			continue
		}
		r.deliver(plan, rows)
	}
	r.deliverAll()
}

func awayAtPlan(r *run) {
	r.add(1, 40)
	r.deliverAll()
	r.add(1, 40)
	mend := r.Break(r.t)
	n, plan, err := r.sink.Plan(r.t.Context(), r.state, r.waiting)
	if err == nil { // the plan needs nothing from the store
		r.fail(plan, r.waiting.Head(n))
	}
	mend()
	if err == nil {
		r.deliver(plan, r.waiting.Head(n))
	}
	r.deliverAll()
}

func awayAtDeliver(r *run) {
	r.add(1, 40)
	r.deliverAll()
	r.add(1, 40)
	rows, plan := r.plan()
	mend := r.Break(r.t)
	r.fail(plan, rows)
	r.fail(plan, rows)
	r.restart()
	r.fail(plan, rows)
	mend()
	r.deliver(plan, rows)
	r.deliverAll()
}

func awayDuringDeliver(r *run) {
	r.add(1, 300)
	took := r.deliverAll()
	for n := range 10 {
		r.add(2, 200)
		rows, plan := r.plan()
		broken := make(chan func(), 1)
		time.AfterFunc(time.Duration(r.random.Int64N(2*int64(took))), func() { broken <- r.Break(r.t) })
		state, err := r.attempt(plan, rows)
		(<-broken)()
		if err == nil {
			r.state = state
			r.done(rows.Rows())
			continue
		}
		if n%2 == 0 {
			r.restart()
		}
		r.deliver(plan, rows)
	}
	r.deliverAll()
}

func awayBetween(r *run) {
	for range 3 {
		r.add(1, 40)
		rows, plan := r.plan()
		r.Break(r.t)()
		r.deliver(plan, rows)
	}
	r.deliverAll()
}

func awayWhenIdle(r *run) {
	probe := func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		return r.sink.Probe(ctx)
	}
	require.NoError(r.t, probe())
	mend := r.Break(r.t)
	require.Error(r.t, probe())
	mend()
	require.Eventually(r.t, func() bool { return probe() == nil }, time.Minute, 10*time.Millisecond)
	r.add(1, 10)
	r.deliverAll()
}

// halving delivers rows of which the store rejects some, and restarts the sink around every
// attempt.
func halving(r *run) {
	if r.Reject == nil {
		return
	}
	const rejected = "rejected"
	r.add(1, 30)
	r.deliverAll()
	r.Reject(r.t, rejected)
	r.add(2, 25)
	r.wait([]string{"D01", rejected, "D02", "D03", "D04", rejected, "D05", rejected})
	var dead []string
	for limit := r.waiting.Rows(); r.waiting.Rows() > 0; {
		offered := r.waiting.Head(min(limit, r.waiting.Rows()))
		n, plan, err := r.sink.Plan(r.t.Context(), r.state, offered)
		require.NoError(r.t, err)
		rows := offered.Head(n)
		r.restart()
		state, err := r.settle(plan, rows)
		r.restart()
		switch {
		case err == nil:
			r.state, limit = state, 2*n
			r.done(n)
			continue
		case n == 1:
			dead = append(dead, string(rows[0].Code(rows[0].From)))
			r.done(1)
		default:
			limit = n / 2
		}
		if state != nil {
			r.state = state
		}
	}
	require.Equal(r.t, []string{rejected, rejected, rejected}, dead, "rows that were rejected on their own")
	r.sent = slices.DeleteFunc(r.sent, func(row Row) bool { return row.Detector == rejected })
	r.check()
}

// run is the state of a delivery that survives restarts, and what the store must have.
type run struct {
	Store
	t       *testing.T
	random  *rand.Rand
	sink    pipeline.Sink
	state   []byte
	waiting batch.Block // rows that are not delivered
	frame   uint64      // of the next batch
	sent    []Row
}

// restart replaces the sink, as a restart of the daemon does.
func (r *run) restart() {
	if r.sink != nil {
		require.NoError(r.t, r.sink.Close())
	} else {
		r.t.Cleanup(func() { require.NoError(r.t, r.sink.Close()) })
	}
	r.sink = r.Open(r.t)
}

// add makes batches wait for delivery.
func (r *run) add(batches, rows int) {
	for range batches {
		codes := make([]string, rows)
		for i := range codes {
			codes[i] = fmt.Sprintf("D%02d", r.random.IntN(40))
		}
		r.wait(codes)
	}
}

// wait makes a batch wait for delivery, with a row for each detector code.
func (r *run) wait(codes []string) {
	now := time.Now()
	b := &batch.Batch{ID: batch.ID(uuid.Must(uuid.NewV7())), ProductInstance: "city", ReceivedAt: now.UnixNano()}
	b.TypeText, b.TypeEnd = []byte("speed"), []uint32{5}
	for i, code := range codes {
		from := now.Add(-time.Duration(r.random.IntN(90*24*60)) * time.Minute).Truncate(time.Minute).UnixNano()
		b.Codes = append(b.Codes, code...)
		b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
		b.Type, b.From, b.To = append(b.Type, 0), append(b.From, from), append(b.To, from+int64(i)) // no two rows replace each other
		b.Value, b.Quality = append(b.Value, r.random.NormFloat64()), append(b.Quality, math.NaN())
		b.Index = append(b.Index, uint32(2*i))
		r.sent = append(r.sent, Row{b.ID, b.Index[i], code, "speed", from, b.To[i], b.Value[i]})
	}
	r.waiting = append(r.waiting, batch.Span{Batch: b, Frame: r.frame, To: b.Rows()})
	r.frame++
}

// plan plans the next block.
func (r *run) plan() (rows batch.Block, plan []byte) {
	n, plan, err := r.sink.Plan(r.t.Context(), r.state, r.waiting)
	require.NoError(r.t, err)
	require.Positive(r.t, n)
	return r.waiting.Head(n), plan
}

// attempt calls Deliver once. An attempt that does not end is an error of the sink.
func (r *run) attempt(plan []byte, rows batch.Block) (state []byte, err error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return r.sink.Deliver(ctx, plan, rows)
}

// succeed requires that an attempt succeeds.
func (r *run) succeed(plan []byte, rows batch.Block) {
	state, err := r.attempt(plan, rows)
	require.NoError(r.t, err)
	r.state = state
}

// fail requires that an attempt fails with an error after which it is repeated.
func (r *run) fail(plan []byte, rows batch.Block) {
	_, err := r.attempt(plan, rows)
	require.Error(r.t, err, "the store cannot be reached")
	require.False(r.t, errors.As(err, new(*batch.PermanentError)), "no row was rejected: %v", err)
}

// settle repeats an attempt until the block is delivered or rejected.
func (r *run) settle(plan []byte, rows batch.Block) (state []byte, err error) {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		state, err := r.attempt(plan, rows)
		if err == nil || errors.As(err, new(*batch.PermanentError)) {
			return state, err
		}
		require.True(r.t, time.Now().Before(deadline), "not delivered: %v", err)
	}
}

// deliver repeats an attempt until the block is delivered, and moves past it.
func (r *run) deliver(plan []byte, rows batch.Block) {
	state, err := r.settle(plan, rows)
	require.NoError(r.t, err, "no row was rejected")
	r.state = state
	r.done(rows.Rows())
}

// done moves past the first n rows.
func (r *run) done(n int) {
	var rest batch.Block
	for _, s := range r.waiting {
		skip := min(n, s.To-s.From)
		n -= skip
		if s.From += skip; s.From < s.To {
			rest = append(rest, s)
		}
	}
	r.waiting = rest
}

// deliverAll delivers what waits, compares the store with everything that was sent, and returns how
// long the delivery took.
func (r *run) deliverAll() time.Duration {
	begin := time.Now()
	for r.waiting.Rows() > 0 {
		rows, plan := r.plan()
		r.deliver(plan, rows)
	}
	took := time.Since(begin)
	r.check()
	return took
}

// check compares the store with everything that was sent.
func (r *run) check() {
	r.t.Helper()
	counts := map[Row]int{}
	for _, row := range r.Read(r.t) {
		counts[row]++
	}
	var lost, doubled []Row
	for _, row := range r.sent {
		switch counts[row] {
		case 0:
			lost = append(lost, row)
		case 1:
		default:
			doubled = append(doubled, row)
		}
		delete(counts, row)
	}
	require.Empty(r.t, lost, "lost")
	require.Empty(r.t, doubled, "stored more than once")
	require.Empty(r.t, slices.Collect(maps.Keys(counts)), "stored, but never sent or rejected")
}
