package clickhouse

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// relay forwards connections to an engine that runs as a library. Without it, the engine would
// abort when a client resets its connection during the handshake, as a killed client does. Behind
// the relay, the engine sees only orderly shutdowns.
type relay struct {
	listener net.Listener
	engine   string // host:port
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func startRelay(address, engine string) (*relay, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for ClickHouse clients: %w", err)
	}
	r := &relay{listener: l, engine: engine}
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
	_, _ = io.Copy(engine, client)
	_ = engine.CloseWrite()
	responses.Wait()
}
