package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// edge is a shipped configuration of a proxy.
type edge struct {
	file    string   // in deployments/edge
	args    []string // of the program, before the path of the configuration
	install string   // how to install the program
}

var edges = []edge{
	{"nginx.conf", []string{"nginx", "-e", "stderr", "-c"}, "apt-get install nginx-light"},
	{"haproxy.cfg", []string{"haproxy", "-db", "-f"}, "apt-get install haproxy"},
	{
		"envoy.yaml",
		[]string{"envoy", "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning", "-c"},
		"add it to PATH, or let make conformance download it",
	},
}

// program returns the path of the proxy. Envoy may be where the conformance tests put it.
func (e edge) program() (string, error) {
	path, err := exec.LookPath(e.args[0])
	if err == nil {
		return path, nil
	}
	cache := cmp.Or(os.Getenv("TRAFFICD_CACHE"), filepath.Join(must.Get(launch.ModuleRoot()), ".cache"))
	found, _ := filepath.Glob(filepath.Join(cache, "toolkits", e.args[0]+"-*", e.args[0], "_bin", e.args[0])) // the pattern is valid
	if len(found) == 0 {
		return "", fmt.Errorf("%s is not installed (%s)", e.args[0], e.install)
	}
	return found[0], nil
}

// enter makes clients send to the first replica or, if e is not nil, to this proxy in front of the
// replicas. It returns an error if the proxy is not installed.
func (t *target) enter(ctx context.Context, e *edge, replicas ...launch.Daemon) (stop func(), missing error) {
	if t.entry = t.API; e == nil {
		return func() {}, nil
	}
	program, missing := e.program()
	if missing != nil {
		return nil, missing
	}
	proxy := startPeer(ctx, program, func(d *daemon) []string {
		config := filepath.Join(d.Dir, e.file)
		must.Do(os.WriteFile(config, []byte(must.Get(launch.EdgeConfig(e.file, d.API, d.Dir, replicas...))), 0o600))
		d.OnDeath = syscall.SIGTERM
		return append(e.args[1:], config)
	})
	t.entry = proxy.API
	must.Do(launch.Eventually(ctx, 30*time.Second, func() error { // until the proxy's health checks have found a replica
		return t.send(&t.persistent, "persistent", proxy.API, zip([]string{item(t.detectors[0], time.Now().AddDate(0, 0, -1))}))
	}))
	return proxy.stop, nil
}
