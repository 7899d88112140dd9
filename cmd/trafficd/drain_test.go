package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// Promise 8: after SIGTERM under load the daemon exits with 0. Requests in progress get their 207, new
// ones a 503 or a connection that closes before the answer. What got a 207 is in both stores after the
// next start.
func TestDrainUnderLoad(t *testing.T) {
	d, c, k := onRealStores(t)
	d.set("api.drain_grace=500ms", "shutdown_timeout=20s")
	d.start().await(http.StatusOK)
	var promised ledger
	load := startLoad(t, &promised, d.API, 8, false)
	const rounds, size = 3, 100
	for range rounds {
		load.awaitProgress(d)
		underWay := map[int]*begun{}
		for range 4 {
			batch := load.take()
			underWay[batch] = d.begin(d.raw(batchNumber(batch, size), keyOf(batch)))
		}
		d.signal(syscall.SIGTERM)
		d.awaitDraining()
		for batch, b := range underWay {
			a, err := b.finish()
			require.NoError(t, err, "a request that was in progress at SIGTERM")
			require.Equal(t, http.StatusMultiStatus, a.status, "%+v", a)
			require.Equal(t, size, a.Accepted)
			promised.add(t, batch, a)
		}
		code, log := d.end()
		require.Zero(t, code, log)
		require.NotContains(t, log, "cut off")
		d.start().await(http.StatusOK)
	}
	load.stop()
	d.awaitDelivered()
	promised.check(t, c, k)
}

// During rolling restarts of two replicas behind a load balancer, under load, clients see only 207 and
// 503 with Retry-After. What got a 207 is in both stores once.
func TestRollingRestart(t *testing.T) {
	first, c, k := onRealStores(t)
	second := newProcess(t, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP, "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	replicas := []*process{first, second}
	for _, d := range replicas {
		d.set("api.drain_grace=1s")
		d.start()
	}
	b := startBalancer(t, first, second)
	b.await(true, true)
	var promised ledger
	load := startLoad(t, &promised, b.address(), 8, true)
	for range 3 {
		for _, d := range replicas {
			load.awaitProgress(d)
			code, log := d.signal(syscall.SIGTERM).end()
			require.Zero(t, code, log)
			require.NotContains(t, log, "cut off")
			d.start()
			b.await(true, true)
		}
	}
	load.stop()
	for _, d := range replicas {
		d.awaitDelivered()
	}
	promised.check(t, c, k)
}

func (d *process) awaitDraining() {
	d.t.Helper()
	d.eventually(func() bool {
		_, r := d.ready()
		return strings.Contains(strings.Join(r.Components["daemon"].Reasons, " "), "draining")
	}, "draining")
}

// load is a set of clients that send batches of unique items, each repeatedly until it gets its 207.
type load struct {
	t        *testing.T
	address  string
	strict   bool // every request must get an answer
	promised *ledger
	next     atomic.Int64
	refused  atomic.Int64
	broken   atomic.Int64
	enough   atomic.Bool
	clients  sync.WaitGroup
}

// startLoad starts clients, half of which keep their connections, until stop.
func startLoad(t *testing.T, promised *ledger, address string, clients int, strict bool) *load {
	l := &load{t: t, address: address, strict: strict, promised: promised}
	for n := range clients {
		transport := &http.Transport{DisableKeepAlives: n%2 == 0, MaxConnsPerHost: 1}
		l.clients.Go(func() {
			defer transport.CloseIdleConnections()
			for !l.enough.Load() {
				l.sendUntilKept(&http.Client{Transport: transport, Timeout: 30 * time.Second})
			}
		})
	}
	t.Cleanup(func() { // if the test has failed
		l.enough.Store(true)
		l.clients.Wait()
	})
	return l
}

// stop waits until each client has finished its batch.
func (l *load) stop() {
	l.enough.Store(true)
	l.clients.Wait()
	l.t.Logf("%d batches; %d answers 503; %d connections closed before an answer", l.next.Load(), l.refused.Load(), l.broken.Load())
	require.False(l.t, l.t.Failed())
}

// take returns the number of the next batch.
func (l *load) take() int { return int(l.next.Add(1) - 1) }

func (l *load) awaitProgress(d *process) {
	d.t.Helper()
	before := l.promised.len()
	d.eventually(func() bool { return l.promised.len() > before+50 }, "more batches")
}

func (l *load) sendUntilKept(client *http.Client) {
	const size = 100
	batch := l.take()
	packed, target := pack(batchNumber(batch, size)), &process{Daemon: launch.Daemon{API: l.address}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var begun atomic.Bool
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotFirstResponseByte: func() { begun.Store(true) }})
		a, err := target.postPacked(ctx, client, packed, keyOf(batch))
		switch {
		case err != nil && (begun.Load() || l.strict):
			l.t.Errorf("batch %d: %v (answer begun: %v)", batch, err, begun.Load())
			return
		case err != nil:
			l.broken.Add(1)
		case a.status == http.StatusMultiStatus && a.Accepted == size:
			l.promised.add(l.t, batch, a)
			return
		case (a.status == http.StatusServiceUnavailable || a.status == http.StatusConflict) && a.header.Get("Retry-After") != "":
			l.refused.Add(1)
		default:
			l.t.Errorf("batch %d: %+v", batch, a)
			return
		}
	}
	l.t.Errorf("batch %d was not accepted", batch)
}

// balancer forwards connections to replicas that are ready, as a TCP load balancer does.
type balancer struct {
	t        *testing.T
	listener net.Listener
	replicas []*process
	ready    []atomic.Bool
	turn     atomic.Int64
	running  sync.WaitGroup
}

// startBalancer runs a balancer until the end of the test.
func startBalancer(t *testing.T, replicas ...*process) *balancer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &balancer{t: t, listener: listener, replicas: replicas, ready: make([]atomic.Bool, len(replicas))}
	ctx, cancel := context.WithCancel(context.Background())
	for i := range replicas {
		b.running.Go(func() { b.check(ctx, i) })
	}
	b.running.Go(b.accept)
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		b.running.Wait()
	})
	return b
}

func (b *balancer) address() string { return b.listener.Addr().String() }

// check polls the readiness of a replica.
func (b *balancer) check(ctx context.Context, i int) {
	for ctx.Err() == nil {
		status, _ := b.replicas[i].get("/readyz")
		b.ready[i].Store(status == http.StatusOK)
		time.Sleep(50 * time.Millisecond)
	}
}

// await waits until the replicas are in or out.
func (b *balancer) await(in ...bool) {
	b.t.Helper()
	b.replicas[0].eventually(func() bool {
		for i := range in {
			if b.ready[i].Load() != in[i] {
				return false
			}
		}
		return true
	}, "replicas in the balancer: %v", in)
}

func (b *balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.pass(client) })
	}
}

// pass connects a client to the next replica that listens.
func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	for range 2 * len(b.replicas) {
		i := int(b.turn.Add(1)) % len(b.replicas)
		if !b.ready[i].Load() {
			continue
		}
		replica, err := net.Dial("tcp", b.replicas[i].API)
		if err != nil {
			continue
		}
		join(client.(*net.TCPConn), replica.(*net.TCPConn))
		return
	}
}

// join copies in both directions, and passes on closes and resets.
func join(a, b *net.TCPConn) {
	var both sync.WaitGroup
	one := func(to, from *net.TCPConn) {
		if _, err := from.WriteTo(to); err != nil {
			_, _ = to.SetLinger(0), from.SetLinger(0)
			_, _ = to.Close(), from.Close()
			return
		}
		_ = to.CloseWrite()
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
	_ = b.Close()
}
