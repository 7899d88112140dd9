package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// latency is the time that bytes take from one end of a connection to the other.
const latency = 200 * time.Microsecond

// network is a network in memory between the processes of the daemon and the stores. Its faults are
// per store and replica.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener // keyed by address
	links     map[string][]*link   // keyed by store, one for each replica
	trace     func(format string, args ...any)
	point     func(replica int, what string) // called where a process may be killed; may block
}

// link is the state of the network between a replica of the daemon and a store. Connections
// remember nothing but what was lost.
type link struct {
	store     string
	replica   int
	down      time.Time     // until then, connections are refused
	stalled   time.Time     // until then, what is sent is lost without an error
	oneWay    bool          // stalled loses responses only
	slow      time.Time     // until then, bytes are delayed
	delay     time.Duration // by this much
	cutReply  int           // number of responses that are lost, with their connections
	cutInside int           // number of requests of which only a half arrives before the connection is lost
	conns     []*conn       // clients' ends
}

func newNetwork(replicas int, trace func(string, ...any), point func(int, string)) *network {
	n := &network{listeners: map[string]*listener{}, links: map[string][]*link{}, trace: trace, point: point}
	for _, store := range []string{archive, broker} {
		for r := range replicas {
			n.links[store] = append(n.links[store], &link{store: store, replica: r})
		}
	}
	return n
}

// everyReplica selects the links of all replicas.
const everyReplica = -1

// listen opens an address of a store.
func (n *network) listen(store, address string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{store: store, address: addr(address), accept: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[address] = l
	return l
}

// cut breaks all connections of a replica to a store. What is under way is lost.
func (n *network) cut(store string, replica int) {
	var conns []*conn
	n.set(store, replica, func(l *link) {
		conns = append(conns, l.conns...)
		l.conns = nil
	})
	for _, c := range conns {
		c.reset()
	}
}

// set changes the state of a link.
func (n *network) set(store string, replica int, change func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links[store] {
		if replica == everyReplica || replica == l.replica {
			change(l)
		}
	}
}

// heal ends all faults.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range slices.Concat(n.links[archive], n.links[broker]) {
		l.down, l.stalled, l.slow, l.cutReply, l.cutInside = time.Time{}, time.Time{}, time.Time{}, 0, 0
	}
}

// host is a process with connections of its own: when it is killed, the kernel closes them.
type host struct {
	n       *network
	replica int
	judge   bool // its connections have no faults
	mu      sync.Mutex
	dead    bool
	all     []*conn
}

func (h *host) kill() {
	h.mu.Lock()
	h.dead = true
	all := h.all
	h.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

const dialTimeout = 5 * time.Second

// dial implements dial.Func.
func (h *host) dial(ctx context.Context, _, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: err}
	}
	h.n.mu.Lock()
	l := h.n.listeners[address]
	now, state := time.Now(), new(link)
	if l != nil && !h.judge {
		state = h.n.links[l.store][h.replica]
	}
	stalled, refused := state.stalled.After(now), l == nil || state.down.After(now)
	h.n.mu.Unlock()
	if stalled {
		select {
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(dialTimeout):
			return fail(os.ErrDeadlineExceeded)
		}
	}
	time.Sleep(latency)
	h.mu.Lock()
	defer h.mu.Unlock()
	if refused || h.dead || ctx.Err() != nil {
		return fail(cmp.Or(ctx.Err(), os.NewSyscallError("connect", syscall.ECONNREFUSED)))
	}
	there, back := newPipe(), newPipe()
	client := &conn{n: h.n, link: state, rd: back, wr: there, local: "10.0.0.1:40000", remote: l.address}
	server := &conn{n: h.n, link: state, rd: there, wr: back, local: l.address, remote: "10.0.0.1:40000", server: true}
	h.n.mu.Lock()
	state.conns = append(state.conns, client)
	h.n.mu.Unlock()
	select {
	case l.accept <- server:
	case <-l.closed:
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	h.all = append(h.all, client)
	h.n.trace("net connect %s", address)
	return client, nil
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

type listener struct {
	store   string
	address addr
	accept  chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Addr() net.Addr { return l.address }

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// pipe is one direction of a connection.
type pipe struct {
	mu     sync.Mutex
	wake   *sync.Cond
	chunks []chunk
	last   time.Time // arrival of the last chunk
	eof    bool      // the writer has closed it
	lost   bool      // the connection was lost without the knowledge of the ends
	err    error     // the connection was reset

	deadline time.Time // of the reader
	closed   bool      // by the reader
}

type chunk struct {
	at   time.Time
	data []byte
}

func newPipe() *pipe {
	p := new(pipe)
	p.wake = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	p.wake.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		now := time.Now()
		var until time.Time
		switch {
		case p.closed:
			return 0, net.ErrClosed
		case p.err != nil:
			return 0, p.err
		case !p.deadline.IsZero() && !p.deadline.After(now):
			runtime.Gosched() // ClickHouse's client reads again until its context has seen the deadline
			return 0, os.ErrDeadlineExceeded
		case len(p.chunks) > 0 && !p.chunks[0].at.After(now):
			n := copy(b, p.chunks[0].data)
			if p.chunks[0].data = p.chunks[0].data[n:]; len(p.chunks[0].data) == 0 {
				p.chunks = p.chunks[1:]
			}
			return n, nil
		case len(p.chunks) > 0:
			until = p.chunks[0].at
		case p.eof:
			return 0, io.EOF
		}
		if until.IsZero() || !p.deadline.IsZero() && p.deadline.Before(until) {
			until = p.deadline
		}
		if until.IsZero() {
			p.wake.Wait()
			continue
		}
		timer := time.AfterFunc(until.Sub(now), func() { p.change(func() {}) })
		p.wake.Wait()
		timer.Stop()
	}
}

// conn is one end of a connection.
type conn struct {
	n             *network
	link          *link
	rd, wr        *pipe
	local, remote addr
	server        bool
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.rd.read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Addr: c.remote, Err: err}
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	now, l := time.Now(), c.link
	at := now.Add(latency)
	if l.slow.After(now) {
		at = at.Add(l.delay)
	}
	lost := l.stalled.After(now) && (c.server || !l.oneWay)
	cut, kept := false, len(b)
	switch {
	case c.server && l.cutReply > 0:
		l.cutReply--
		cut, kept = true, 0
	case !c.server && l.cutInside > 0 && len(b) > 64:
		l.cutInside--
		cut, kept = true, len(b)/2
	}
	c.n.mu.Unlock()
	if c.server {
		c.n.trace("net %s answers %d bytes", l.store, len(b))
	} else {
		c.n.trace("net %s is sent %d bytes", l.store, len(b))
	}
	if c.server {
		c.n.point(l.replica, l.store+" answers")
	}
	var err error
	c.wr.change(func() {
		switch {
		case c.wr.eof:
			err = net.ErrClosed
		case c.wr.err != nil:
			err = c.wr.err
		case c.wr.closed:
			err = os.NewSyscallError("write", syscall.EPIPE)
		case lost:
			c.wr.lost = true
		case !c.wr.lost && kept > 0:
			if at.Before(c.wr.last) {
				at = c.wr.last
			}
			c.wr.last = at
			c.wr.chunks = append(c.wr.chunks, chunk{at, append([]byte(nil), b[:kept]...)})
		}
	})
	if cut {
		c.rd.change(func() { c.rd.err = os.NewSyscallError("read", syscall.ECONNRESET) })
		if c.server {
			c.wr.change(func() { c.wr.chunks, c.wr.err = nil, os.NewSyscallError("read", syscall.ECONNRESET) })
		} else {
			c.wr.change(func() { c.wr.eof = true }) // the half arrives
		}
	}
	if !c.server {
		c.n.point(l.replica, l.store+" is sent bytes")
	}
	if err != nil {
		return 0, &net.OpError{Op: "write", Net: "tcp", Addr: c.remote, Err: err}
	}
	return len(b), nil
}

// reset breaks the connection for both ends.
func (c *conn) reset() {
	for _, p := range []*pipe{c.rd, c.wr} {
		p.change(func() { p.chunks, p.err = nil, os.NewSyscallError("read", syscall.ECONNRESET) })
	}
}

func (c *conn) Close() error {
	c.rd.change(func() { c.rd.closed = true })
	c.wr.change(func() { c.wr.eof = c.wr.eof || !c.wr.lost })
	return nil
}

func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error { return nil } // a write never blocks
func (c *conn) SetReadDeadline(t time.Time) error {
	c.rd.change(func() { c.rd.deadline = t })
	return nil
}
