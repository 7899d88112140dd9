package rig

import (
	"os"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Edge is the load balancer: HAProxy with the shipped configuration, adapted to the rig's addresses
// and number of replicas. It is not safe for concurrent use.
type Edge struct {
	launch.Daemon
	Address string // host:port that clients connect to
}

// startEdge starts HAProxy, which forwards to the replicas' wires. Health checks bypass the wires.
func (r *Rig) startEdge() {
	file := r.path("haproxy.cfg")
	e := &Edge{launch.Daemon{Binary: "haproxy", Dir: r.cfg.Dir, Args: []string{"-db", "-f", file}}, must.Get(launch.FreeAddress())}
	r.onClose(e.Kill)
	var replicas []launch.Daemon
	for i, d := range r.Replicas {
		replicas = append(replicas, launch.Daemon{API: r.ClientWires[i].Address, Ops: d.Ops})
	}
	must.Do(os.WriteFile(file, []byte(must.Get(launch.EdgeConfig("haproxy.cfg", e.Address, "", replicas...))), 0o644))
	must.Do(e.Start())
	r.Edge = e
}
