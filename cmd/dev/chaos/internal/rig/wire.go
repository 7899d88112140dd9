package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Wire is a toxiproxy in front of one server. If a client or the server stops reading, toxiproxy
// may block forever while holding its locks. Its API then no longer responds, and Wire kills and
// restarts it.
type Wire struct {
	Address string // host:port that clients connect to

	proxy  launch.Daemon
	server string
}

// startWire starts a proxy that forwards a free port to server, which need not be listening yet.
func (r *Rig) startWire(name, server string) *Wire {
	dir, api := r.path("wire-"+name), must.Get(launch.FreeAddress())
	must.Do(os.MkdirAll(dir, 0o755))
	host, port, err := net.SplitHostPort(api)
	must.Do(err)
	w := &Wire{Address: must.Get(launch.FreeAddress()), server: server}
	w.proxy = launch.Daemon{Binary: r.proxy, Dir: dir, Args: []string{"-host", host, "-port", port}, API: api}
	r.onClose(w.Cut)
	must.Do(w.Join())
	return w
}

// Directions of a toxic.
const (
	Requests  = "upstream"
	Responses = "downstream"
)

const toxics = "/proxies/wire/toxics"

// Disturb adds a toxic to one direction of all current and future connections, until Heal. If the
// proxy does not respond, Disturb restarts it, which closes all connections.
func (w *Wire) Disturb(kind, direction string, attributes map[string]any) error {
	toxic := map[string]any{"name": "toxic", "type": kind, "stream": direction, "toxicity": 1.0, "attributes": attributes}
	if err := w.call(http.MethodPost, toxics, toxic); err == nil {
		return nil
	}
	if err := w.restart(); err != nil {
		return err
	}
	return w.call(http.MethodPost, toxics, toxic)
}

// Heal removes the toxic that Disturb added. Like Disturb, it may close all connections.
func (w *Wire) Heal() error {
	if err := w.call(http.MethodDelete, toxics+"/toxic", nil); err == nil {
		return nil
	}
	return w.restart()
}

// restart restarts the proxy, which closes all connections and removes all toxics.
func (w *Wire) restart() error { return errors.Join(w.Cut(), w.Join()) }

// Cut closes all connections and refuses new ones until Join.
func (w *Wire) Cut() error { return w.proxy.Kill() }

// Join undoes Cut.
func (w *Wire) Join() error {
	if err := w.proxy.Start(); err != nil {
		return err
	}
	wire := map[string]any{"name": "wire", "listen": w.Address, "upstream": w.server, "enabled": true}
	return launch.Eventually(context.Background(), 20*time.Second, func() error {
		return w.call(http.MethodPost, "/populate", []any{wire})
	})
}

func (w *Wire) call(method, path string, body any) (err error) {
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	message := must.Get(json.Marshal(body))
	r, err := launch.Request(ctx, http.DefaultClient, method, "http://"+w.proxy.API+path, message)
	must.Do(err, "cannot reach toxiproxy")
	if r.Status >= 300 {
		return fmt.Errorf("toxiproxy rejected %s %s %s: %s", method, path, message, r.Body)
	}
	return nil
}
