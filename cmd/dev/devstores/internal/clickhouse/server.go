// Package clickhouse runs a real ClickHouse on loopback: `clickhouse server` if a recent version is
// installed, and otherwise the engine as a shared library in a child process.
package clickhouse

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

const (
	// startLimit bounds the time from exec to the first response, which is typically 0.1 s, but more
	// with many parts or on a busy machine.
	startLimit = 2 * time.Minute
	// stopLimit is twice the duration of a clean stop with connected clients, which is about 5 s.
	stopLimit = 10 * time.Second
)

// Server is a running ClickHouse.
type Server struct {
	launch.ClickHouseInfo
	proc   *launch.Process
	relay  *relay // nil unless the engine is the library
	native string // host:port of the engine's own native protocol listener
	unlock func()
}

// Start starts a server in opts.Dir and returns when it responds on both ports. failed is called if
// the server exits without Stop; it should cancel ctx, so that Start does not wait for a process
// that has exited.
func Start(ctx context.Context, opts launch.Options, failed func(error)) (s *Server, err error) {
	home, err := makeHome(filepath.Join(opts.Dir, "clickhouse"))
	if err != nil {
		return nil, err
	}
	unlock, err := launch.TryLock(home.path("lock"))
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %s (is another ClickHouse running in it?): %w", home, err)
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	defer must.Return(&err)
	engine := must.Get(chooseEngine(ctx, opts))
	tcp, http := opts.ClickHouseTCP, opts.ClickHouseHTTP
	if engine.kind == KindLibrary {
		must.Do(home.removePartLog())
		tcp = must.Get(launch.PickPort("ClickHouse's engine", 0))
	}
	s = &Server{unlock: unlock, native: opts.Host.Endpoint(tcp).String(), ClickHouseInfo: launch.ClickHouseInfo{
		TCP: opts.Host.Endpoint(opts.ClickHouseTCP).String(), HTTP: opts.Host.Endpoint(opts.ClickHouseHTTP).String(), Kind: engine.kind,
	}}
	if opts.Cluster != nil {
		s.HTTP, http = "", 0
	}
	must.Do(home.writeConfig(opts, tcp, http))
	must.Do(s.launch(ctx, engine.command(home, tcp, http, opts), home, failed))
	if s.native != s.TCP {
		if s.relay, err = startRelay(s.TCP, s.native, s.HTTP, opts.Stderr); err != nil {
			return nil, errors.Join(err, s.proc.Kill())
		}
	}
	return s, nil
}

// launch starts the child and waits until its listeners respond. After an error, no child is left
// running.
func (s *Server) launch(ctx context.Context, cmd *exec.Cmd, home home, failed func(error)) (err error) {
	defer must.Return(&err, "cannot start ClickHouse")
	console := must.Get(os.Create(home.path("console.log")))
	defer console.Close()
	cmd.Stdout, cmd.Stderr = console, console
	s.proc = must.Get(launch.Start(cmd, failed))
	s.Processes = []int{s.proc.PID()}
	err = launch.Eventually(ctx, startLimit, func() (err error) {
		defer must.Return(&err)
		if s.HTTP != "" {
			must.Get(launch.QueryClickHouse(ctx, s.HTTP, "SELECT 1"))
		}
		s.Version = must.Get(nativeVersion(ctx, s.native))
		return nil
	})
	if err != nil {
		_ = s.proc.Kill()
		log, _ := os.ReadFile(console.Name())
		return fmt.Errorf("cannot start ClickHouse in %s: %w\n%s: …%s", home, err, console.Name(), log[max(0, len(log)-2000):])
	}
	return nil
}

func nativeVersion(ctx context.Context, address string) (version string, err error) {
	defer must.Return(&err)
	conn := must.Get(ch.Open(&ch.Options{Addr: []string{address}}))
	defer conn.Close()
	return version, conn.QueryRow(ctx, "SELECT version()").Scan(&version)
}

// Stop stops the server cleanly.
func (s *Server) Stop() error {
	defer s.unlock()
	err := s.proc.Stop(stopLimit)
	if s.relay != nil {
		s.relay.stop()
	}
	return err
}

//go:embed config.xml
var configXML string

//go:embed users.xml
var usersXML []byte

var configTemplate = template.Must(template.New("config.xml").Parse(configXML))

// home is the directory of a server's data, logs and configuration.
type home string

func makeHome(dir string) (h home, err error) {
	defer must.Return(&err, "cannot create ClickHouse's directory")
	h = home(must.Get(filepath.Abs(dir)))
	for _, sub := range []string{"data", "logs", "tmp"} {
		must.Do(os.MkdirAll(h.path(sub), 0o755))
	}
	return h, nil
}

func (h home) path(name string) string { return filepath.Join(string(h), name) }

// writeConfig writes config.xml and users.xml. It is called at every start, because the ports may
// have changed. tcp and http are the engine's ports.
func (h home) writeConfig(opts launch.Options, tcp, http int) (err error) {
	defer must.Return(&err, "cannot write ClickHouse's configuration")
	var text bytes.Buffer
	must.Do(configTemplate.Execute(&text, map[string]any{
		"Home": string(h), "Host": opts.Host.Endpoint(tcp).Host, "TCP": tcp, "HTTP": http, "MergeTree": opts.MergeTree,
		"Cluster": opts.Cluster, "Given": opts.Host.Endpoint(opts.ClickHouseTCP),
	}))
	must.Do(os.WriteFile(h.path("config.xml"), text.Bytes(), 0o644))
	must.Do(os.WriteFile(h.path("users.xml"), usersXML, 0o644))
	return nil
}

// removePartLog removes the previous run's system.part_log, which the library cannot use: it does
// not load its system tables, but creates each when it is first written. If the table's directory
// exists, that fails ("Directory … already exists"), so nothing is logged, and SYSTEM FLUSH LOGS
// waits forever. With a server, this path is a symbolic link, which is kept.
func (h home) removePartLog() error {
	table := h.path("data/data/system/part_log")
	if info, err := os.Lstat(table); err != nil || !info.IsDir() {
		return nil
	}
	if err := os.RemoveAll(table); err != nil {
		return fmt.Errorf("cannot remove ClickHouse's part log: %w", err)
	}
	return nil
}
