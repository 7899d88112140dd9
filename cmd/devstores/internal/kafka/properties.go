package kafka

import (
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trafficd/cmd/devstores/internal/loopback"
)

//go:embed log4j2.properties
var log4jProperties []byte

// properties is the server.properties of a node: ours, then what the caller sets over them.
func (a *apache) properties(node int) []byte {
	all := a.network(node)
	maps.Copy(all, a.sizes())
	all["log.dirs"] = filepath.Join(a.nodeDir(node), "data")
	maps.Copy(all, a.cfg.Properties)
	var text strings.Builder
	text.WriteString("# Written by devstores at every start.\n")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", key, all[key])
	}
	return []byte(text.String())
}

// network says who a node is, where it listens and who votes.
func (a *apache) network(node int) map[string]string {
	client := "PLAINTEXT://" + loopback.Address(a.cfg.Ports[node-1])
	advertised := client
	if len(a.cfg.Advertised) > 0 {
		advertised = "PLAINTEXT://" + a.cfg.Advertised[node-1]
	}
	var voters []string
	for i, port := range a.controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, loopback.Address(port)))
	}
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(node),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      client + ",CONTROLLER://" + loopback.Address(a.controllers[node-1]),
		"advertised.listeners":           advertised,
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "PLAINTEXT",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		// A broker that was killed may register again only when its old session has ended: a restart would wait 9 s.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
	}
}

// sizes are set for a cluster of one machine: as many replicas as there are brokers, up to three, and few partitions of Kafka's own topics.
func (a *apache) sizes() map[string]string {
	replicas := strconv.Itoa(min(3, a.cfg.Brokers))
	return map[string]string{
		"num.partitions":                                   strconv.Itoa(a.cfg.Partitions),
		"auto.create.topics.enable":                        "true",
		"default.replication.factor":                       replicas,
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.segment.bytes":                                strconv.Itoa(64 << 20),
		"log.cleaner.dedupe.buffer.size":                   strconv.Itoa(16 << 20),
	}
}
