package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Wire is the way to one server, on which connections can be spoilt: a
// toxiproxy of its own. Where a connection is stuck, because who should read
// from it stands still, toxiproxy waits for it for ever, with everything locked;
// then it is killed and started again.
type Wire struct {
	Address string // where clients connect to

	binary string
	log    string
	server string
	port   int // of its API
	proc   *child
}

// lay leads from a free port to a server, which need not be there.
func lay(ctx context.Context, binary, log, server string) (*Wire, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	w := &Wire{Address: loopback(ports[0]), binary: binary, log: log, server: server, port: ports[1]}
	return w, w.start(ctx)
}

func (w *Wire) start(ctx context.Context) (err error) {
	if w.proc, err = start(w.log, nil, w.binary, "-host", "127.0.0.1", "-port", fmt.Sprint(w.port)); err != nil {
		return err
	}
	return eventually(ctx, 20*time.Second, func() error {
		return w.call(ctx, http.MethodPost, "/populate", []any{map[string]any{"name": "wire", "listen": w.Address, "upstream": w.server, "enabled": true}})
	})
}

func (w *Wire) close() {
	if w.proc != nil {
		w.proc.kill()
	}
}

// anew closes all connections and forgets all toxics.
func (w *Wire) anew(ctx context.Context) error {
	w.close()
	return w.start(ctx)
}

// The directions of a toxic.
const (
	Requests = "upstream"
	Answers  = "downstream"
)

// Spoil puts a toxic on the wire's connections, those that are open and those
// to come, in one direction, until Heal. A connection that is stuck is closed.
func (w *Wire) Spoil(ctx context.Context, kind, direction string, attributes map[string]any) error {
	toxic := map[string]any{"name": "toxic", "type": kind, "stream": direction, "toxicity": 1.0, "attributes": attributes}
	if err := w.call(ctx, http.MethodPost, "/proxies/wire/toxics", toxic); err == nil {
		return nil
	}
	if err := w.anew(ctx); err != nil {
		return err
	}
	return w.call(ctx, http.MethodPost, "/proxies/wire/toxics", toxic)
}

// Heal ends Spoil.
func (w *Wire) Heal(ctx context.Context) error {
	if err := w.call(ctx, http.MethodDelete, "/proxies/wire/toxics/toxic", nil); err == nil {
		return nil
	}
	return w.anew(ctx)
}

// Cut closes all connections and takes none until Join.
func (w *Wire) Cut() { w.close() }

// Join ends Cut.
func (w *Wire) Join(ctx context.Context) error { return w.start(ctx) }

func (w *Wire) call(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+loopback(w.port)+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot reach toxiproxy: %w", err)
	}
	defer r.Body.Close()
	if said, _ := io.ReadAll(r.Body); r.StatusCode >= 300 {
		return fmt.Errorf("cannot change the proxy by %s %s %s: %s", method, path, text, said)
	}
	return nil
}
