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
	turningAway  = 32                    // surplus connections that get a 503 at a time; others are just closed
	turnAwayTime = time.Second           // for the answer to one of them
	acceptPause  = 50 * time.Millisecond // after a failed accept, for example without file descriptors
	waitStep     = 5 * time.Millisecond  // how often a stop checks for open connections
)

// listener accepts connections up to a limit and keeps track of them.
type listener struct {
	net.Listener
	tls *tls.Config // nil: plain
	cfg Config
	log zerolog.Logger

	mu   sync.Mutex
	open map[*conn]struct{} // connections being served

	surplus chan struct{} // a token for each connection being turned away
}

func newListener(l net.Listener, tls *tls.Config, cfg Config, log zerolog.Logger) *listener {
	return &listener{Listener: l, tls: tls, cfg: cfg, log: log, open: map[*conn]struct{}{}, surplus: make(chan struct{}, turningAway)}
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
	c := &conn{Conn: raw, raw: raw, owner: l}
	if l.tls != nil {
		c.Conn = tls.Server(raw, l.tls)
	}
	return c
}

// enter registers a connection, unless the limit is reached.
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
		writeError(&resp, contract.Unavailable("all connections are in use: try again later", time.Second), trace.String())
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
