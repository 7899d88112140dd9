package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"
)

// Wires is a running toxiproxy: each wire is a way to a server on which
// connections can be spoilt.
type Wires struct {
	api  string
	proc *child
}

// startWires runs toxiproxy.
func startWires(ctx context.Context, binary, dir string) (*Wires, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	w := &Wires{api: "http://" + loopback(port)}
	w.proc, err = start(filepath.Join(dir, "toxiproxy.log"), nil, binary, "-host", "127.0.0.1", "-port", fmt.Sprint(port))
	if err != nil {
		return nil, err
	}
	return w, eventually(ctx, 20*time.Second, func() error { return w.call(ctx, http.MethodGet, "/version", nil) })
}

func (w *Wires) close() { w.proc.kill() }

// Wire is the way to one server.
type Wire struct {
	wires   *Wires
	name    string
	server  string
	Address string // where clients connect to
}

// lay leads from a port to a server, which need not be there.
func (w *Wires) lay(ctx context.Context, name string, port int, server string) (*Wire, error) {
	wire := &Wire{wires: w, name: name, server: server, Address: loopback(port)}
	return wire, wire.make(ctx)
}

func (w *Wire) make(ctx context.Context) error {
	return w.wires.call(ctx, http.MethodPost, "/proxies", map[string]any{"name": w.name, "listen": w.Address, "upstream": w.server, "enabled": true})
}

// The directions of a toxic.
const (
	Requests = "upstream"
	Answers  = "downstream"
)

// Spoil puts a toxic on the wire's connections, those that are open and those
// to come, in one direction, until Heal. If an open one is stuck, because who
// should read from it stands still, toxiproxy waits for it for ever: then only
// those to come are spoilt.
func (w *Wire) Spoil(ctx context.Context, kind, direction string, attributes map[string]any) error {
	if err := w.poison(ctx, kind, direction, attributes); err == nil {
		return nil
	}
	if err := w.Heal(ctx); err != nil {
		return err
	}
	return w.poison(ctx, kind, direction, attributes)
}

func (w *Wire) poison(ctx context.Context, kind, direction string, attributes map[string]any) error {
	return w.wires.call(ctx, http.MethodPost, "/proxies/"+w.name+"/toxics", map[string]any{
		"name": kind + "-" + direction, "type": kind, "stream": direction, "toxicity": 1.0, "attributes": attributes,
	})
}

// Heal closes the wire's connections and lays it anew: to take a toxic from a
// stuck connection is what toxiproxy waits for, too.
func (w *Wire) Heal(ctx context.Context) error {
	if err := w.wires.call(ctx, http.MethodDelete, "/proxies/"+w.name, nil); err != nil {
		return err
	}
	return w.make(ctx)
}

// Cut closes all connections and takes none; Join takes them again.
func (w *Wire) Cut(ctx context.Context) error { return w.enable(ctx, false) }

// Join ends Cut.
func (w *Wire) Join(ctx context.Context) error { return w.enable(ctx, true) }

func (w *Wire) enable(ctx context.Context, on bool) error {
	return w.wires.call(ctx, http.MethodPost, "/proxies/"+w.name, map[string]any{"enabled": on})
}

func (w *Wires) call(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, w.api+path, bytes.NewReader(text))
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
