package api

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

const (
	turningAway  = 32                    // surplus connections that get a 503 at a time; others are just closed
	turnAwayTime = time.Second           // for the answer to one of them
	acceptPause  = 50 * time.Millisecond // after a failed accept, for example without file descriptors
	allInUse     = "all connections are in use: try again later"
	waitStep     = 5 * time.Millisecond // how often a stop checks for open connections
)

// listener accepts connections up to a limit and keeps track of them.
type listener struct {
	net.Listener
	tls *tls.Config // nil: plain
	cfg Config
	log zerolog.Logger

	mu         sync.Mutex
	open       map[*conn]struct{}   // connections being served
	silent     list.List            // those of them without a request with a valid key, oldest first
	perAddress map[netip.Prefix]int // number of elements in silent

	surplus chan struct{} // a token for each connection being turned away
}

func newListener(l net.Listener, tls *tls.Config, cfg Config, log zerolog.Logger) *listener {
	return &listener{Listener: l, tls: tls, cfg: cfg, log: log, open: map[*conn]struct{}{}, perAddress: map[netip.Prefix]int{}, surplus: make(chan struct{}, turningAway)}
}

// Accept implements net.Listener. Its only error is net.ErrClosed: after any other fasthttp would stop
// accepting.
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
		l.turnAway(c)
	}
}

func (l *listener) wrap(raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, owner: l, address: addressOf(raw)}
	if l.tls != nil {
		c.Conn = tls.Server(raw, l.tls)
	}
	return c
}

// addressOf returns what counts as one client's address: an IPv4 address, or an IPv6 network of /64,
// which is the least that a customer of a provider gets.
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

// enter registers a connection. At a limit it evicts the oldest connection without a valid key: of the
// same address, or of all. It returns false if all connections that are open have presented keys.
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

// evict breaks a connection. Its goroutine gets an error and ends.
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
	l.unsilence(c)
	delete(l.open, c)
	connectionsOpen.Set(float64(len(l.open)))
}

func (l *listener) unsilence(c *conn) {
	if c.silent == nil {
		return
	}
	l.silent.Remove(c.silent)
	c.silent = nil
	if l.perAddress[c.address]--; l.perAddress[c.address] == 0 {
		delete(l.perAddress, c.address)
	}
}

// present records that a request had a valid key: the connection is no longer evicted. It returns
// false if that has happened already.
func (l *listener) present(c *conn) bool {
	if c.known {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.silent == nil {
		return false
	}
	l.unsilence(c)
	c.known = true
	return true
}

// headerTimeout reports whether less than half of the connections are free, and how long one without
// a valid key may then be silent: less the fewer are free, at least a tenth of the configured time.
func (l *listener) headerTimeout() (limit time.Duration, few bool) {
	full, free := l.cfg.HeaderTimeout, l.cfg.MaxConnections-l.len()
	return max(full/10, full*time.Duration(2*free)/time.Duration(l.cfg.MaxConnections)), 2*free < l.cfg.MaxConnections
}

// turnAway answers 503 to a surplus connection, on a goroutine that ends after at most turnAwayTime
// and the time for discarding.
func (l *listener) turnAway(c *conn) {
	select {
	case l.surplus <- struct{}{}:
	default:
		_ = c.Conn.Close()
		return
	}
	go func() {
		defer func() { <-l.surplus }()
		_ = c.SetDeadline(time.Now().Add(turnAwayTime))
		var resp fasthttp.Response
		trace := newTrace()
		writeError(&resp, contract.Unavailable(allInUse, time.Second), trace.String())
		resp.SetConnectionClose()
		_, _ = resp.WriteTo(c)
		c.unread.Store(true)
		_ = c.Close()
	}()
}

// wait returns when no connection is left or ctx ends.
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

// closeUnused ends the connections without a byte of a request, as if their clients had closed them:
// fasthttp closes those that are idle after a request.
func (l *listener) closeUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if half, ok := c.raw.(interface{ CloseRead() error }); ok && !c.used.Load() {
			_ = half.CloseRead()
		}
	}
}

// cutOff breaks every connection that is left and returns their number. The goroutines that serve
// them get errors and close them.
func (l *listener) cutOff() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.raw.Close()
	}
	return len(l.open)
}
