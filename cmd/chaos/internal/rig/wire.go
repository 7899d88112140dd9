package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"trafficd/cmd/internal/launch"
)

// Wire is a toxiproxy in front of one server. If a client or the server stops reading, toxiproxy
// may wait for the connection forever while it holds its locks. Its API then no longer responds,
// and it is killed and restarted.
type Wire struct {
	Address string // for clients

	binary string
	log    string
	server string
	port   int // of toxiproxy's API
	proc   *launch.Process
}

// startWire starts a proxy that forwards a free port to a server, which need not be running.
func (r *Rig) startWire(name, server string) (*Wire, error) {
	ports, err := launch.PickPorts("toxiproxy", 2)
	if err != nil {
		return nil, err
	}
	w := &Wire{Address: launch.Address(ports[0]), binary: r.proxy, log: r.path("toxiproxy-" + name + ".log"), server: server, port: ports[1]}
	r.wires = append(r.wires, w)
	return w, w.Join()
}

// Directions of a toxic.
const (
	Requests  = "upstream"
	Responses = "downstream"
)

const toxics = "/proxies/wire/toxics"

// Disturb adds a toxic to current and future connections in one direction, until Heal. It may close
// connections that are stuck.
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

// Heal removes the toxic that Disturb added.
func (w *Wire) Heal() error {
	if err := w.call(http.MethodDelete, toxics+"/toxic", nil); err == nil {
		return nil
	}
	return w.restart()
}

// restart closes all connections and removes all toxics.
func (w *Wire) restart() error {
	if err := w.Cut(); err != nil {
		return err
	}
	return w.Join()
}

// Cut closes all connections and accepts none until Join.
func (w *Wire) Cut() error { return w.proc.Kill() }

// Join accepts connections again after Cut.
func (w *Wire) Join() error {
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open the toxiproxy log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(w.binary, "-host", "127.0.0.1", "-port", fmt.Sprint(w.port))
	cmd.Stdout, cmd.Stderr = log, log
	if w.proc, err = launch.StartGroup(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	wire := map[string]any{"name": "wire", "listen": w.Address, "upstream": w.server, "enabled": true}
	return launch.Eventually(context.Background(), 20*time.Second, func() error {
		return w.call(http.MethodPost, "/populate", []any{wire})
	})
}

func (w *Wire) call(method, path string, body any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	message, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+launch.Address(w.port)+path, bytes.NewReader(message))
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot reach toxiproxy: %w", err)
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode >= 300 {
		return fmt.Errorf("toxiproxy rejected %s %s %s: %s", method, path, message, text)
	}
	return nil
}
