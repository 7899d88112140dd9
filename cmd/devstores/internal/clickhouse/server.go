// Package clickhouse runs a real ClickHouse on loopback: `clickhouse server` where that program is installed, else the engine as a
// shared library in a child process.
package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"trafficd/cmd/devstores/internal/filelock"
	"trafficd/cmd/devstores/internal/loopback"
	"trafficd/cmd/devstores/internal/process"
)

const (
	// startLimit bounds the way from exec to a first answer: 0.1 s is usual, a folder full of parts on a busy machine takes longer.
	startLimit = 2 * time.Minute
	// stopLimit is twice what a clean stop takes while clients hold connections (about 5 s).
	stopLimit = 10 * time.Second
)

// Config says where a server keeps its data and listens.
type Config struct {
	Dir      string    // survives a restart; made if it is not there
	TCP      int       // port of the native protocol, 0 = a free one
	HTTP     int       // port of HTTP, 0 = a free one
	Kind     string    // one of Kinds
	Progress io.Writer // lines for a human
}

// Info is what a client has to know of a running server.
type Info struct {
	TCP     string `json:"tcp"`
	HTTP    string `json:"http"`
	Kind    string `json:"kind"` // KindServer or KindLibrary
	Version string `json:"version"`
	PIDs    []int  `json:"pids"`
}

// Server is a running ClickHouse.
type Server struct {
	Info
	proc   *process.Process
	relay  *relay // nil where the engine needs none
	native string // where the engine itself listens for the native protocol
	unlock func()
}

// Start brings up a server and returns when it answers on both ports. failed is called if it ends without Stop; it
// should end ctx, so that Start does not wait for the dead.
func Start(ctx context.Context, cfg Config, failed func(error)) (s *Server, err error) {
	home, err := makeHome(cfg.Dir)
	if err != nil {
		return nil, err
	}
	unlock, err := filelock.Try(home.path("lock"))
	if err != nil {
		return nil, fmt.Errorf("cannot use the folder %s, is a ClickHouse running in it? %w", home, err)
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	if cfg.TCP, err = loopback.Pick("ClickHouse's native protocol", cfg.TCP); err != nil {
		return nil, err
	}
	if cfg.HTTP, err = loopback.Pick("ClickHouse over HTTP", cfg.HTTP); err != nil {
		return nil, err
	}
	engine, err := chooseEngine(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if engine.kind == KindLibrary {
		if err := home.forgetPartLog(); err != nil {
			return nil, err
		}
	}
	s = &Server{unlock: unlock, Info: Info{TCP: loopback.Address(cfg.TCP), HTTP: loopback.Address(cfg.HTTP), Kind: engine.kind}}
	if engine.kind == KindLibrary {
		if cfg.TCP, err = loopback.Pick("ClickHouse's engine", 0); err != nil {
			return nil, err
		}
	}
	s.native = loopback.Address(cfg.TCP)
	if err := home.writeConfig(cfg); err != nil {
		return nil, err
	}
	if err := s.launch(ctx, engine.command(home, cfg), home, failed); err != nil {
		return nil, err
	}
	return s, s.startRelay()
}

func (s *Server) startRelay() (err error) {
	if s.native == s.TCP {
		return nil
	}
	if s.relay, err = startRelay(s.TCP, s.native); err != nil {
		return errors.Join(err, s.proc.Kill())
	}
	return nil
}

// launch starts the child and waits until it answers; on an error nothing is left running.
func (s *Server) launch(ctx context.Context, cmd *exec.Cmd, home home, failed func(error)) error {
	console, err := os.Create(home.path("console.log"))
	if err != nil {
		return fmt.Errorf("cannot open ClickHouse's console log: %w", err)
	}
	defer console.Close()
	cmd.Stdout, cmd.Stderr = console, console
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer cancel()
	s.proc, err = process.Start(cmd, failed)
	if err != nil {
		return err
	}
	s.PIDs = []int{s.proc.PID()}
	if err := s.awaitReady(ctx); err != nil {
		s.proc.Kill()
		return fmt.Errorf("cannot start ClickHouse in %s: %w\n%s", home, err, tail(console.Name()))
	}
	return nil
}

// Stop ends the server cleanly.
func (s *Server) Stop() error {
	defer s.unlock()
	err := s.proc.Stop(stopLimit)
	if s.relay != nil {
		s.relay.stop()
	}
	return err
}

// awaitReady returns when both listeners answer; HTTP is the first to come and tells the version.
func (s *Server) awaitReady(ctx context.Context) error {
	for {
		version, err := Query(ctx, s.HTTP, "SELECT version()")
		if err == nil {
			err = dial(ctx, s.native)
		}
		if err == nil {
			s.Version = strings.TrimSpace(version)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func dial(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Query runs one statement over HTTP as the user default and returns the answer's text; the error holds ClickHouse's own message.
func Query(ctx context.Context, address, sql string) (string, error) {
	target := url.URL{Scheme: "http", Host: address, Path: "/", RawQuery: "wait_end_of_query=1"} // an error must come as a status, not in the middle of an answer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(sql))
	if err != nil {
		return "", fmt.Errorf("cannot query ClickHouse: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	res, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot query ClickHouse: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("cannot read ClickHouse's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("cannot run %q: %s", sql, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	const lines = 12
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return filepath.Base(file) + ": " + strings.Join(all[max(0, len(all)-lines):], "\n")
}
