package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"trafficd/cmd/internal/launch"
	"trafficd/cmd/internal/must"
)

// Edge is the load balancer: HAProxy with the shipped configuration, adapted to the rig's addresses
// and number of replicas. It is not safe for concurrent use.
type Edge struct {
	launch.Daemon
	Address string // host:port that clients connect to
}

// server is the shipped configuration's line for the second replica.
const server = "    server replica-2 replica-2:8080 check port 8081\n"

// startEdge starts HAProxy, which forwards to the replicas' wires. Health checks bypass the wires.
func (r *Rig) startEdge() {
	text := must.Get(os.ReadFile(filepath.Join(must.Get(launch.ModuleRoot()), "deployments", "edge", "haproxy.cfg")))
	file := r.path("haproxy.cfg")
	e := &Edge{launch.Daemon{Binary: "haproxy", Dir: r.cfg.Dir, Args: []string{"-db", "-f", file}}, must.Get(launch.FreeAddress())}
	r.onClose(e.Kill)
	more, words := "", []string{"bind :80\n", "bind " + e.Address + "\n"}
	for i, d := range r.Replicas {
		name := fmt.Sprint("replica-", i+1)
		if i > 1 {
			more += strings.ReplaceAll(server, "replica-2", name)
		}
		host, port, err := net.SplitHostPort(d.Ops)
		must.Do(err)
		words = append(words, name+":8080 check port 8081", fmt.Sprintf("%s check addr %s port %s", r.ClientWires[i].Address, host, port))
	}
	config := strings.NewReplacer(words...).Replace(strings.Replace(string(text), server, server+more, 1))
	must.Do(os.WriteFile(file, []byte(config), 0o644))
	must.Do(e.Start())
	r.Edge = e
}
