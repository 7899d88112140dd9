package turns

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// callers calls Take in goroutines of a synctest bubble.
type callers struct {
	*testing.T
	*Limiter
	started chan string // clients whose caller took a slot, in order
	refused chan string
}

func newCallers(t *testing.T, slots, perClient, capacity int) callers {
	return callers{t, New(slots, perClient, capacity), make(chan string, 100), make(chan string, 100)}
}

// take starts callers of a client, one after another, and returns once each has taken a slot, waits
// or was refused.
func (c callers) take(client string, times int) {
	for range times {
		go func() {
			if ok, _ := c.Take(client); ok {
				c.started <- client
			} else {
				c.refused <- client
			}
		}()
		synctest.Wait()
	}
}

// pass gives back a client's slots one after another, and requires that the next caller is each
// time of the wanted client; empty: that none starts.
func (c callers) pass(client string, want ...string) {
	c.Helper()
	for _, next := range want {
		c.Release(client)
		synctest.Wait()
		c.requireStarted(next)
	}
}

func (c callers) requireStarted(want string) {
	c.Helper()
	got := ""
	if len(c.started) > 0 {
		got = <-c.started
	}
	require.Equal(c, want, got)
	require.Empty(c, c.started)
}

func (c callers) requireEmpty() {
	c.Helper()
	require.Empty(c, c.running)
	require.Empty(c, c.waiting)
	require.Empty(c, c.order)
	require.Zero(c, c.Depth())
}

// TestClientsTakeTurns checks that clients are served in turn, no matter how many callers of each
// are waiting, and that a client takes at most its slots and its share of the queue.
func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, 4, 2, 16)
		for _, other := range []string{"a", "b", "c", "d"} {
			c.take(other, 1)
			c.requireStarted(other)
		}
		wait := func(client string, want int) {
			t.Helper()
			c.take(client, want+1)
			require.Equal(t, client, <-c.refused)
			require.Empty(t, c.refused)
			require.Len(t, c.waiting[client], want)
		}
		wait("greedy", 8)
		wait("second", 4)
		wait("third", 2)
		c.pass("a", "greedy")
		c.pass("b", "second")
		c.pass("c", "third")
		c.pass("d", "greedy") // now it has its two slots
		c.pass("second", "second")
		c.pass("third", "third")
		c.pass("second", "second")
		c.pass("greedy", "greedy")
		require.Equal(t, 6, c.Depth())
		c.pass("third", "second")
		c.pass("second", "", "") // only greedy waits, which has its two slots
		c.pass("greedy", "greedy", "greedy", "greedy", "greedy", "greedy", "", "")
		c.requireEmpty()
	})
}

// TestClientLeavesSlotFree checks that a client that has taken all its slots does not delay another
// client's caller.
func TestClientLeavesSlotFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, 2, 1, 16)
		c.take("greedy", 3)
		c.requireStarted("greedy")
		c.take("next", 1)
		c.requireStarted("next")
		require.Equal(t, 2, c.Depth())
		c.pass("next", "")
		c.pass("greedy", "greedy", "greedy", "")
		c.requireEmpty()
	})
}

// TestFullQueue checks that callers of any client are refused when the queue is full.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, 1, 1, 1)
		c.take("a", 1)
		c.requireStarted("a")
		c.take("a", 1)
		require.Equal(t, 1, c.Depth())
		for i := range 100 {
			c.take(fmt.Sprint(i), 1)
		}
		require.Len(t, c.refused, 100)
		c.pass("a", "a", "")
		c.requireEmpty()
	})
}

// TestManyClients checks that neither the slots nor a client's part of them are exceeded, that
// every caller gets its turn, and that the Limiter does not remember clients that have gone.
func TestManyClients(t *testing.T) {
	const slots, perClient, clients, callers, turns = 4, 2, 6, 5, 100
	l := New(slots, perClient, 12)
	var mu sync.Mutex
	running, total, taken := map[string]int{}, 0, 0
	change := func(client string, n int) {
		mu.Lock()
		defer mu.Unlock()
		running[client] += n
		total += n
		if n > 0 {
			taken++
		}
		if running[client] > perClient || total > slots {
			t.Errorf("client %q has %d slots of %d, all clients have %d of %d", client, running[client], perClient, total, slots)
		}
	}
	var all sync.WaitGroup
	for i := range clients * callers {
		all.Go(func() {
			for n := range turns {
				client := fmt.Sprint(i%clients, "key", n/10) // names change
				for ok, _ := l.Take(client); !ok; ok, _ = l.Take(client) {
					runtime.Gosched()
				}
				change(client, 1)
				runtime.Gosched()
				change(client, -1)
				l.Release(client)
			}
		})
	}
	all.Wait()
	require.Equal(t, clients*callers*turns, taken)
	require.Equal(t, slots, l.free)
	require.Empty(t, l.running)
	require.Empty(t, l.waiting)
	require.Empty(t, l.order)
	require.Zero(t, l.Depth())
}

func TestFreeSlotAllocatesNothing(t *testing.T) {
	l := New(2, 1, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l.Take("a")
		l.Take("b")
		l.Release("a")
		l.Release("b")
	}))
}
