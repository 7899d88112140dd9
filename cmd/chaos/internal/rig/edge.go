package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"trafficd/cmd/internal/launch"
)

// Edge is an HAProxy with the shipped configuration. Its methods must not be called concurrently.
type Edge struct {
	Address string
	config  string // file
	log     string // file
	proc    *launch.Process
}

// server is the shipped configuration's line for the second replica.
const server = "    server replica-2 replica-2:8080 check port 8081\n"

// startEdge starts an HAProxy in front of the replicas' wires. It checks the replicas themselves.
func (r *Rig) startEdge() (*Edge, error) {
	root, err := launch.ModuleRoot()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "deployments", "edge", "haproxy.cfg"))
	if err != nil {
		return nil, fmt.Errorf("cannot read HAProxy's configuration: %w", err)
	}
	e := &Edge{config: r.path("haproxy.cfg"), log: r.path("haproxy.log")}
	if e.Address, err = launch.FreeAddress(); err != nil {
		return nil, err
	}
	more, words := "", []string{"bind :80\n", "bind " + e.Address + "\n"}
	for i, d := range r.Replicas {
		name := fmt.Sprint("replica-", i+1)
		if i > 1 {
			more += strings.ReplaceAll(server, "replica-2", name)
		}
		host, port, err := net.SplitHostPort(d.Ops)
		if err != nil {
			return nil, err
		}
		words = append(words, name+":8080 check port 8081", fmt.Sprintf("%s check addr %s port %s", r.ClientWires[i].Address, host, port))
	}
	config := strings.NewReplacer(words...).Replace(strings.Replace(string(text), server, server+more, 1))
	if err := os.WriteFile(e.config, []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("cannot write HAProxy's configuration: %w", err)
	}
	return e, e.Start()
}

// Start starts HAProxy.
func (e *Edge) Start() error {
	log, err := os.OpenFile(e.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open HAProxy's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command("haproxy", "-db", "-f", e.config)
	cmd.Stdout, cmd.Stderr = log, log
	e.proc, err = launch.StartGroup(cmd, unix.SIGKILL)
	return err
}

// Kill sends SIGKILL.
func (e *Edge) Kill() error { return e.proc.Kill() }

// Pause stops HAProxy until Resume; connections stay open.
func (e *Edge) Pause() error { return e.proc.Signal(unix.SIGSTOP) }

// Resume undoes Pause.
func (e *Edge) Resume() error { return e.proc.Signal(unix.SIGCONT) }
