package clickhouse

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// TestFaults makes the server unavailable in each way that a client can observe.
func TestFaults(t *testing.T) {
	store := stores.StartClickHouse(t)
	t.Run("unavailable", func(t *testing.T) { testUnavailable(t, store) })
	t.Run("password", func(t *testing.T) { testPassword(t, store) })
	t.Run("paused", func(t *testing.T) { testPausedServer(t, store) })
	t.Run("cut", func(t *testing.T) { testCut(t, store) })
	t.Run("killed", func(t *testing.T) { testKilled(t, store) })
}

func testUnavailable(t *testing.T, store *stores.ClickHouse) {
	require.NoError(t, store.Stop())
	a := newArchive(t, store)
	rows, plan := a.plan(smallBlock(1))
	require.ErrorContains(t, a.requireFailure(classNetwork, plan, rows), "check that the server is running")
	require.NoError(t, store.Restart())
	before := lookups()
	a.deliver(plan, rows)
	require.Equal(t, before, lookups())

	require.NoError(t, store.Kill())
	next, plan2 := a.plan(smallBlock(2))
	for range 3 {
		a.requireFailure(classNetwork, plan2, next)
	}
	require.NoError(t, store.Restart())
	a.deliver(plan2, next)
	a.requireRows(append(rows, next...))
}

// testPassword checks that deliveries with a wrong password are retried, and that the error names
// the remedy.
func testPassword(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.Username, c.Password = "trafficd", "wrong" })
	rows, plan := a.plan(smallBlock(1))
	err := a.requireFailure(classAuth, plan, rows)
	require.ErrorContains(t, err, "check username, password")
	require.NotContains(t, err.Error(), "wrong")
	require.NoError(t, store.Kill())
	require.NoError(t, store.Restart())

	right := newArchive(t, store, func(c *Config) { c.Username, c.Password = "trafficd", "trafficd" })
	rows, plan = right.plan(smallBlock(1))
	right.deliver(plan, rows)
	right.requireRows(rows)
}

// testPausedServer pauses the server while all or part of a block is in its socket, and resumes it
// later.
func testPausedServer(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.WriteTimeout, c.DialTimeout = time.Second, time.Second })
	require.NoError(t, Migrate(t.Context(), withLongTimeouts(a.config), a.log))
	first, plan := a.plan(smallBlock(1))
	a.retry(plan, first) // a busy server may take longer than write_timeout
	require.NoError(t, store.Pause())
	rows, plan := a.plan(smallBlock(2))
	for range 2 {
		a.requireFailure(classTimeout, plan, rows)
	}
	require.NoError(t, store.Resume())
	a.retry(plan, rows)
	revive(t, store)
	a.requireRows(append(first, rows...))
}

// retry delivers a block, and retries after errors as the delivery loop does. Before each retry it
// restarts a server that has exited, as a supervisor does: ClickHouse as a library exits after some
// connection errors that a real server survives, such as a rejected login.
func (a *archive) retry(plan []byte, rows batch.Block) {
	a.t.Helper()
	ctx := withTimeout(a.t, time.Minute)
	for {
		_, err := a.Deliver(ctx, plan, rows)
		if err == nil {
			return
		}
		require.NoError(a.t, ctx.Err(), err)
		if store, single := a.store.(*stores.ClickHouse); single {
			revive(a.t, store)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// revive restarts the server if it does not respond.
func revive(t testing.TB, store *stores.ClickHouse) {
	t.Helper()
	if _, err := store.Do(withTimeout(t, 2*time.Second), "SELECT 1"); err != nil {
		require.NoError(t, store.Kill())
		require.NoError(t, store.Restart())
	}
}

// testCut cuts connections after a number of bytes in either direction: within the block, between
// the block and the end of the INSERT, and before or within the acknowledgement.
func testCut(t *testing.T, store *stores.ClickHouse) {
	p := startProxy(t, store.TCP)
	a := newArchive(t, store, func(c *Config) { c.Addresses, c.Compression = []string{p.address()}, "none" })
	r := rand.New(rand.NewPCG(7, 1))
	var all batch.Block
	for n := range 16 {
		rows, plan := a.plan(blockOf(batchOf(n, epoch+int64(n), randomRows(r, 200, 4)...)))
		all = append(all, rows...)
		p.limit(1<<40, 1<<40)
		if n > 0 { // the connection of the first block is not cut
			up, down := 300+r.Int64N(24_000), int64(1<<40)
			if n%2 == 0 {
				up, down = 1<<40, r.Int64N(3000)
			}
			p.limit(up, down)
			_, _ = a.Deliver(context.Background(), plan, rows)
			p.limit(1<<40, 1<<40)
			if n%3 == 0 {
				a = a.restarted()
			}
		}
		a.retry(plan, rows)
	}
	a.requireRows(all)
}

// testKilled kills the server with SIGKILL during inserts of many months. It compares the rows
// without FINAL: none may be lost or duplicated.
func testKilled(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	r := rand.New(rand.NewPCG(8, 1))
	first := smallBlock(0)
	_, plan := a.plan(first)
	a.deliver(plan, first)
	all := first
	for n := 1; n <= 9; n++ {
		rows, plan := a.plan(blockOf(batchOf(n, epoch+int64(n), randomRows(r, 3000, 30)...)))
		all = append(all, rows...)
		killed := make(chan error, 1)
		time.AfterFunc(time.Duration(r.IntN(150))*time.Millisecond, func() { killed <- store.Kill() })
		_, _ = a.Deliver(context.Background(), plan, rows)
		require.NoError(t, <-killed)
		require.NoError(t, store.Restart())
		if n%3 == 0 {
			a = a.restarted()
		}
		a.retry(plan, rows)
	}
	a.requireRows(all)
}

// proxy forwards connections and cuts each one after a given number of bytes.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	up, down int64
	conns    []net.Conn
	wg       sync.WaitGroup
}

func startProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveProxy(t, l, target)
}

func serveProxy(t testing.TB, l net.Listener, target string) *proxy {
	p := &proxy{listener: l, target: target, up: 1 << 40, down: 1 << 40}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.limit(0, 0)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// limit closes all open connections and sets the byte limits of future ones.
func (p *proxy) limit(up, down int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns, p.up, p.down = nil, up, down
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		up, down := p.up, p.down // limit may change them while the goroutines start
		p.wg.Go(func() { pass(server, client, up) })
		p.wg.Go(func() { pass(client, server, down) })
		p.mu.Unlock()
	}
}

// pass copies up to limit bytes, and then closes both connections.
func pass(to, from net.Conn, limit int64) {
	_, _ = io.CopyN(to, from, limit)
	_ = to.Close()
	_ = from.Close()
}
