// Package zookeeper runs Apache ZooKeeper for the nodes of a ClickHouse cluster, because libchdb
// does not include ClickHouse Keeper. It configures ZooKeeper not to sync its log, which makes
// tests faster.
package zookeeper

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"trafficd/cmd/dev/devstores/internal/cache"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

//go:embed pom.xml
var pom []byte

// A tick of 500 ms allows session timeouts of 1 s.
const configuration = `tickTime=500
dataDir=%s
clientPortAddress=%s
clientPort=%d
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
snapshot.trust.empty=true
`

// Server is a running ZooKeeper.
type Server struct {
	launch.ZooKeeperInfo
	proc *launch.Process
}

// Start starts a server in opts.Dir and returns when it serves requests. failed is called if the
// server exits without Stop.
func Start(ctx context.Context, opts launch.Options, failed func(error)) (s *Server, err error) {
	defer must.Return(&err, "cannot start ZooKeeper")
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("cannot start ZooKeeper: %w; install Java 17 or newer", err)
	}
	jars := must.Get(Fetch(ctx, opts))
	dir := must.Get(filepath.Abs(filepath.Join(opts.Dir, "zookeeper")))
	must.Do(os.MkdirAll(dir, 0o755))
	file, at := filepath.Join(dir, "zoo.cfg"), opts.Host.Endpoint(opts.ZooKeeperPort)
	must.Do(os.WriteFile(file, fmt.Appendf(nil, configuration, filepath.Join(dir, "data"), at.Host, at.Port), 0o644))
	console := must.Get(os.Create(filepath.Join(dir, "console.log")))
	defer console.Close()
	cmd := exec.Command(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dzookeeper.forceSync=no", "-Djava.io.tmpdir="+dir, "-cp", filepath.Join(jars, "*"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, console, console
	s = &Server{ZooKeeperInfo: launch.ZooKeeperInfo{Address: at.String()}, proc: must.Get(launch.Start(cmd, failed))}
	s.Processes = []int{s.proc.PID()}
	if err := launch.Eventually(ctx, time.Minute, s.checkServing); err != nil {
		_ = s.proc.Kill()
		return nil, fmt.Errorf("cannot start ZooKeeper: %w; see %s", err, console.Name())
	}
	return s, nil
}

// Fetch downloads ZooKeeper's jars unless they are in the cache, and returns their directory.
func Fetch(ctx context.Context, opts launch.Options) (jars string, err error) {
	return cache.Jars(ctx, "ZooKeeper", "3.9.3", pom, opts.Stderr)
}

// checkServing returns an error unless the server serves requests. Connecting is not enough,
// because ZooKeeper accepts connections before it can serve requests.
func (s *Server) checkServing() (err error) {
	defer must.Return(&err)
	conn := must.Get(net.DialTimeout("tcp", s.Address, time.Second))
	defer conn.Close()
	must.Do(conn.SetDeadline(time.Now().Add(time.Second)))
	must.Get(io.WriteString(conn, "srvr"))
	if status := must.Get(io.ReadAll(conn)); !strings.Contains(string(status), "Mode: standalone") {
		return fmt.Errorf("unexpected response to srvr: %q", status)
	}
	return nil
}

// Stop kills the server, because ZooKeeper has no command to stop it.
func (s *Server) Stop() error { return s.proc.Kill() }
