package clickhouse

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// relay stands before the engine as a library, which aborts where a client resets its connection during the handshake, as one that is
// killed then does. From here the engine only ever sees orderly ends.
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
		return nil, fmt.Errorf("cannot listen for ClickHouse's clients: %w", err)
	}
	r := &relay{listener: l, engine: engine}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	return r, nil
}

// stop ends all connections, at once: the engine's own stop comes first.
func (r *relay) stop() {
	r.cancel()
	_ = r.listener.Close() // it was open
	r.running.Wait()
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.pass(client.(*net.TCPConn)) })
	}
}

// pass ends when the engine has closed its side.
func (r *relay) pass(client *net.TCPConn) {
	defer client.Close()
	conn, err := net.Dial("tcp", r.engine)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.ctx, func() { _, _ = client.Close(), conn.Close() })()
	engine := conn.(*net.TCPConn)
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, engine)
		_, _ = io.Copy(io.Discard, engine) // the client may have gone: answers that nobody reads would reset the engine's connection
		_ = client.Close()
	})
	_, _ = io.Copy(engine, client)
	_ = engine.CloseWrite()
	answers.Wait()
}
