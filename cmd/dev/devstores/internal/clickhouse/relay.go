package clickhouse

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// relay forwards connections to an engine that runs as a library. Without it, the engine would
// abort when a client resets its connection during the handshake, as a killed client does, or when
// the handshake fails. Behind the relay, the engine sees only orderly shutdowns and handshakes that
// succeed.
type relay struct {
	listener net.Listener
	engine   string // host:port
	http     string // host:port of the engine's HTTP interface; empty: none, so users are not checked
	log      io.Writer
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func startRelay(address, engine, http string, log io.Writer) (*relay, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for ClickHouse clients: %w", err)
	}
	r := &relay{listener: l, engine: engine, http: http, log: log}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	return r, nil
}

// stop closes all connections immediately. The engine must have been stopped first.
func (r *relay) stop() {
	r.cancel()
	_ = r.listener.Close()
	r.running.Wait()
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.forward(client.(*net.TCPConn)) })
	}
}

// forward forwards a client's connection in both directions until the engine closes its side.
func (r *relay) forward(client *net.TCPConn) {
	defer client.Close()
	defer context.AfterFunc(r.ctx, func() { _ = client.Close() })()
	h, err := readHello(client)
	if err != nil {
		if len(h.raw) > 0 {
			fmt.Fprintf(r.log, "clickhouse: closed a connection from %s that does not use the native protocol: %v\n", client.RemoteAddr(), err)
		}
		return
	}
	if code, text := r.refuses(h); code != 0 {
		fmt.Fprintf(r.log, "clickhouse: rejected a connection from %s: %s\n", client.RemoteAddr(), text)
		_, _ = client.Write(exception(code, text))
		_ = client.CloseWrite()
		_, _ = io.Copy(io.Discard, client) // unread data would reset the connection before the client reads the error
		return
	}
	conn, err := net.Dial("tcp", r.engine)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.ctx, func() { _, _ = client.Close(), conn.Close() })()
	engine := conn.(*net.TCPConn)
	var responses sync.WaitGroup
	responses.Go(func() {
		_, _ = io.Copy(client, engine)
		_, _ = io.Copy(io.Discard, engine) // unread data would reset the engine's connection after the client disconnects
		_ = client.Close()
	})
	_, _ = engine.Write(h.raw)
	_, _ = io.Copy(engine, client)
	_ = engine.CloseWrite()
	responses.Wait()
}
