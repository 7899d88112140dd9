package api

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/fair"
	"trafficd/schemas/contract"
)

const (
	maxRejects  = 32                    // surplus connections that get a 503 at a time; further ones are closed without a response
	rejectLimit = time.Second           // time to write each of these responses, including a TLS handshake
	acceptPause = 50 * time.Millisecond // after a failed accept, for example when out of file descriptors
	allInUse    = "all connections are in use: try again later"
	waitStep    = 5 * time.Millisecond // how often wait checks for open connections
)

type listener struct {
	net.Listener
	tls *tls.Config // nil: plain
	cfg Config
	log zerolog.Logger

	mu         sync.Mutex
	open       map[*conn]struct{}   // accepted connections
	silent     list.List            // open connections that have not presented a valid key, oldest first
	perAddress map[netip.Prefix]int // number of elements in silent
	clients    *fair.Shares         // open connections that are not in silent, by contract.Client.Owner

	surplus chan struct{} // a token for each connection that is being rejected
}

func newListener(l net.Listener, tls *tls.Config, cfg Config, log zerolog.Logger) *listener {
	return &listener{
		Listener: l, tls: tls, cfg: cfg, log: log, surplus: make(chan struct{}, maxRejects),
		open: map[*conn]struct{}{}, perAddress: map[netip.Prefix]int{}, clients: fair.New(int64(cfg.MaxConnections)),
	}
}

// Accept implements net.Listener. It returns no error other than net.ErrClosed, because fasthttp
// stops accepting after any error.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		if err != nil {
			acceptErrors.Inc()
			l.log.Error().Err(err).Msg("cannot accept a connection; will retry")
			time.Sleep(acceptPause)
			continue
		}
		c := l.wrap(raw)
		if l.enter(c) {
			return c, nil
		}
		connectionsRejected.Inc()
		l.reject(c)
	}
}

func (l *listener) wrap(raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, owner: l, address: addressOf(raw)}
	if l.tls != nil {
		below := raw
		if l.cfg.TLSClientCA != "" {
			c.handshake = &bounded{raw, maxHandshake}
			below = c.handshake
		}
		c.Conn = tls.Server(below, l.tls)
	}
	return c
}

// addressOf returns the prefix that identifies a client: its IPv4 address or its IPv6 /64, the
// smallest network that providers assign to a customer. It returns no prefix if c is not TCP.
func addressOf(c net.Conn) netip.Prefix {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // valid for an address
	return prefix
}

// enter registers a connection. If a limit is reached, it first evicts the oldest connection that
// has not presented a valid key, or for the limit per address the oldest such connection from that
// address. It returns false if max_connections are open and all have presented a valid key.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.perAddress[c.address]; n > 0 && n == l.cfg.MaxSilent {
		for e := l.silent.Front(); e != nil; e = e.Next() {
			if old := e.Value.(*conn); old.address == c.address {
				l.evict(old)
				break
			}
		}
	}
	if len(l.open) >= l.cfg.MaxConnections {
		oldest := l.silent.Front()
		if oldest == nil {
			return false
		}
		l.evict(oldest.Value.(*conn))
	}
	l.open[c] = struct{}{}
	c.silent = l.silent.PushBack(c)
	l.perAddress[c.address]++
	connectionsOpen.Set(float64(len(l.open)))
	return true
}

// evict closes a connection. Its goroutine gets an error and exits.
func (l *listener) evict(c *conn) {
	l.remove(c)
	_ = c.raw.Close()
	connectionsEvicted.Inc()
}

func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

func (l *listener) remove(c *conn) {
	if _, open := l.open[c]; !open {
		return
	}
	delete(l.open, c)
	if c.silent != nil {
		l.unsilence(c)
	} else {
		l.clients.Add(c.client, -1)
	}
	connectionsOpen.Set(float64(len(l.open)))
}

func (l *listener) unsilence(c *conn) {
	l.silent.Remove(c.silent)
	c.silent = nil
	if l.perAddress[c.address]--; l.perAddress[c.address] == 0 {
		delete(l.perAddress, c.address)
	}
}

// present records that the request x on c has a valid key, if it has one. If the client has reached
// its share of the connections, present evicts the one that has been idle longest. It returns an
// error if none is idle, or if c itself has been evicted.
func (l *listener) present(c *conn, x *exchange) *contract.APIError {
	if x.key == nil || c.client != "" {
		return nil
	}
	client := x.key.client.Owner
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.silent == nil {
		return contract.Unavailable(allInUse, time.Second)
	}
	if l.clients.Check(client, 1) == fair.Exceeded {
		idle := l.longestIdle(client)
		if idle == nil {
			return contract.Unavailable(
				fmt.Sprintf("this client has %d connections with requests in progress and cannot have more: reuse them",
					l.clients.Held(client)), time.Second)
		}
		l.evict(idle)
	}
	l.unsilence(c)
	c.client = client
	l.clients.Add(client, 1)
	return nil
}

// longestIdle returns the connection of a client that has been idle longest, or nil if none is
// idle. It marks the connection as evicted, so that a request that arrives on it has no effect.
func (l *listener) longestIdle(client string) *conn {
	for {
		var longest *conn
		var since int64
		for c := range l.open {
			if at := c.idle.Load(); at > 0 && c.client == client && (longest == nil || at < since) {
				longest, since = c, at
			}
		}
		if longest == nil || longest.idle.CompareAndSwap(since, evicted) {
			return longest
		}
	}
}

// headerTimeout returns how long a connection without a valid key may stay silent, and whether
// fewer than half of the connections are free. The time shrinks with the number of free
// connections, but not below a tenth of the setting.
func (l *listener) headerTimeout() (limit time.Duration, few bool) {
	full, free := l.cfg.HeaderTimeout, l.cfg.MaxConnections-l.len()
	return max(full/10, full*time.Duration(2*free)/time.Duration(l.cfg.MaxConnections)), 2*free < l.cfg.MaxConnections
}

// reject responds with a 503 on a surplus connection, in a goroutine that runs for at most
// rejectLimit plus the time for discarding unread input.
func (l *listener) reject(c *conn) {
	select {
	case l.surplus <- struct{}{}:
	default:
		_ = c.Conn.Close()
		return
	}
	go func() {
		defer func() { <-l.surplus }()
		_ = c.raw.SetDeadline(time.Now().Add(rejectLimit)) // conn's deadlines do not cover the reads of a TLS handshake
		var resp fasthttp.Response
		trace := traceID(nil)
		writeError(&resp, contract.Unavailable(allInUse, time.Second), trace.String())
		resp.SetConnectionClose()
		_, _ = resp.WriteTo(c)
		c.unread.Store(true)
		_ = c.Close()
	}()
}

func (l *listener) wait(ctx context.Context) {
	tick := time.NewTicker(waitStep)
	defer tick.Stop()
	for l.len() > 0 || len(l.surplus) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *listener) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// closeUnused ends the input of connections that have not received a byte; fasthttp itself closes
// those that are idle after a request.
func (l *listener) closeUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if half, ok := c.raw.(interface{ CloseRead() error }); ok && !c.used.Load() {
			_ = half.CloseRead()
		}
	}
}

// cutOff closes the remaining connections, whose goroutines then exit, and returns their number.
func (l *listener) cutOff() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.raw.Close()
	}
	return len(l.open)
}
