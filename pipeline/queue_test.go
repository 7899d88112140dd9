package pipeline

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

func jobOf(client string) *job { return &job{s: &batch.Submission{Client: client}} }

// TestClientsTakeTurns checks that clients are served in turn, no matter how many jobs each has
// queued, and that a client occupies at most half of the workers.
func TestClientsTakeTurns(t *testing.T) {
	q := newQueue(16, 4)
	push := func(client string, want int) {
		t.Helper()
		n := 0
		for q.push(jobOf(client)) {
			n++
		}
		require.Equal(t, want, n)
	}
	push("greedy", 8)
	push("second", 4)
	push("third", 2)
	var popped []*client
	pop := func(want string) {
		t.Helper()
		j, c := q.pop(nil)
		require.Equal(t, want, j.s.Client)
		popped = append(popped, c)
	}
	pop("greedy")
	pop("second")
	pop("third")
	pop("greedy") // now it has its two workers
	pop("second")
	q.done(popped[0])
	pop("third")
	pop("greedy")
	require.Equal(t, 7, q.depth())
}

// TestClientLeavesWorkerFree checks that a client that occupies its half of the workers does not
// delay another client's job.
func TestClientLeavesWorkerFree(t *testing.T) {
	q := newQueue(16, 2)
	for range 3 {
		require.True(t, q.push(jobOf("greedy")))
	}
	_, greedy := q.pop(nil)
	started := make(chan string, 2)
	go func() {
		w := make(worker, 1)
		for j, c := q.pop(w); j != nil; j, c = q.pop(w) {
			started <- j.s.Client
			q.done(c)
		}
		close(started)
	}()
	require.True(t, q.push(jobOf("next")))
	require.Equal(t, "next", <-started)
	require.Equal(t, 2, q.depth())
	q.done(greedy)
	require.Equal(t, "greedy", <-started)
	require.Equal(t, "greedy", <-started)
	q.close()
	require.Empty(t, <-started)
}

// TestLastIdleWorkerWakesFirst checks that the worker that became idle last gets the next job.
func TestLastIdleWorkerWakesFirst(t *testing.T) {
	const workers = 3
	q := newQueue(16, workers)
	woken := make(chan int)
	for i := range workers {
		go func() {
			w := make(worker, 1)
			for j, c := q.pop(w); j != nil; j, c = q.pop(w) {
				q.done(c)
				woken <- i
			}
			woken <- i
		}()
		require.Eventually(t, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.idle) == i+1
		}, time.Minute, time.Millisecond)
	}
	require.True(t, q.push(jobOf("a")))
	require.Equal(t, workers-1, <-woken)
	q.close()
	var ended []int
	for range workers {
		ended = append(ended, <-woken)
	}
	require.ElementsMatch(t, []int{0, 1, 2}, ended)
}

// TestQueueWithManyClients checks that each job is popped once, no client exceeds half of the
// workers, and all workers exit.
func TestQueueWithManyClients(t *testing.T) {
	const workers, clients, jobs = 4, 6, 500
	q := newQueue(10_000, workers)
	var mu sync.Mutex
	running, popped := map[string]int{}, map[*job]bool{}
	var all, pushers sync.WaitGroup
	for range workers {
		all.Go(func() {
			w := make(worker, 1)
			for j, c := q.pop(w); j != nil; j, c = q.pop(w) {
				mu.Lock()
				running[j.s.Client]++
				if running[j.s.Client] > workers/2 || popped[j] {
					t.Errorf("client %q: got %d running jobs, want at most %d; job started before: %t", j.s.Client, running[j.s.Client], workers/2, popped[j])
				}
				popped[j] = true
				mu.Unlock()
				mu.Lock()
				running[j.s.Client]--
				mu.Unlock()
				q.done(c)
			}
		})
	}
	for c := range clients {
		pushers.Go(func() {
			for range jobs {
				for !q.push(jobOf(fmt.Sprint(c))) {
				}
			}
		})
	}
	pushers.Wait()
	q.close()
	all.Wait()
	require.Len(t, popped, clients*jobs)
}
