package api

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

const (
	// turningAway is how many surplus connections are told so at a time; more
	// are closed without a word.
	turningAway = 32
	// turnAwayTime is for how long one of them may take to hear it.
	turnAwayTime = time.Second
	// acceptPause is waited when the system gives no connection, such as for want of
	// file descriptors, so that the wait for better times is no busy loop.
	acceptPause = 50 * time.Millisecond
	// waitStep is how often a stop looks whether the last connection is closed.
	waitStep = 5 * time.Millisecond
)

// listener gives connections that discard at their end (conn), keeps to the
// limit of their number, and knows them all.
type listener struct {
	net.Listener
	tls *tls.Config // nil: plain
	cfg Config
	log zerolog.Logger

	mu   sync.Mutex
	open map[*conn]struct{} // those that are served

	surplus chan struct{} // a token for each connection that is being turned away
}

func newListener(l net.Listener, tls *tls.Config, cfg Config, log zerolog.Logger) *listener {
	return &listener{Listener: l, tls: tls, cfg: cfg, log: log, open: map[*conn]struct{}{}, surplus: make(chan struct{}, turningAway)}
}

// Accept waits for the next connection to serve. Its only error is net.ErrClosed:
// for anything else fasthttp would give up for ever.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		if err != nil {
			acceptErrors.Inc()
			l.log.Error().Err(err).Msg("cannot accept a connection; trying again")
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
	raw = newSocket(raw)
	c := &conn{Conn: raw, raw: raw, owner: l}
	if l.tls != nil {
		c.Conn = tls.Server(raw, l.tls)
	}
	return c
}

// enter counts a connection in, if there is room.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.cfg.MaxConnections {
		return false
	}
	l.open[c] = struct{}{}
	connectionsOpen.Set(float64(len(l.open)))
	return true
}

func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	connectionsOpen.Set(float64(len(l.open)))
}

// turnAway answers 503 to a surplus connection, on a goroutine of its own that
// ends by itself after turnAwayTime and the time for discarding.
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
		writeRefusal(&resp, contract.Unavailable("all connections are in use: try again later", time.Second), trace.String())
		resp.SetConnectionClose()
		_, _ = resp.WriteTo(c)
		c.unread.Store(true)
		_ = c.Close()
	}()
}

// wait returns when no connection is left, or ctx ends.
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

// closeUnused ends the connections that never brought a byte of a request, as if
// their clients had: those that are kept idle after one are fasthttp's to close.
func (l *listener) closeUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if half, ok := c.raw.(interface{ CloseRead() error }); ok && !c.used.Load() {
			_ = half.CloseRead()
		}
	}
}

// cutOff ends every connection that is left, whatever it is doing, and says how
// many there were. Who serves it sees an error and closes it.
func (l *listener) cutOff() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.raw.Close()
	}
	return len(l.open)
}
