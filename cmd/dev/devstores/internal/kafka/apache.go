package kafka

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"trafficd/cmd/dev/devstores/internal/cache"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	deployment "trafficd/deployments/kafka"
)

// apacheStopLimit bounds a clean stop, which takes 0.2–2 s. After it, the broker is killed, and
// recovers its log at the next start.
const apacheStopLimit = 20 * time.Second

// javaOptions make a broker small and quick to start rather than fast in the long run.
var javaOptions = []string{
	"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-XX:-UsePerfData",
}

// clusterID is a UUID in Kafka's encoding. All clusters can share it, because they never
// communicate.
const clusterID = "dHJhZmZpY2QtZGV2c3Rvcg"

// startApache starts an Apache Kafka cluster or, if opts.Node is set, one of its nodes. Every node
// is both a broker and a controller.
func startApache(ctx context.Context, opts launch.Options, failed func(error)) (s *Server, err error) {
	defer must.Return(&err)
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("cannot run Apache Kafka: %w; install Java 17 or newer, or use the broker %s", err, launch.Kfake)
	}
	jars := must.Get(Fetch(ctx, opts))
	must.Do(checkSize(opts))
	s = &Server{KafkaInfo: launch.KafkaInfo{Kind: launch.Apache, Version: apacheVersion()}}
	var procs []*launch.Process
	s.stop = func() error { // all at once: stopped in turn, the last one would wait for a controller that has exited
		return launch.Each(procs, func(_ int, p *launch.Process) error { return p.Stop(apacheStopLimit) })
	}
	for i, port := range opts.KafkaPorts {
		if opts.Node > 0 && opts.Node != i+1 {
			continue
		}
		n := node{opts: opts, id: i + 1, dir: filepath.Join(opts.Dir, fmt.Sprint("node-", i+1)), java: java, jars: jars}
		p, err := n.start(ctx, failed)
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		procs = append(procs, p)
		s.Processes, s.Brokers = append(s.Processes, p.PID()), append(s.Brokers, opts.Hosts.At(i).Endpoint(port).String())
	}
	return s, nil
}

// Fetch downloads Kafka's jars unless they are in the cache, and returns their directory.
func Fetch(ctx context.Context, opts launch.Options) (jars string, err error) {
	return cache.Jars(ctx, "Kafka", apacheVersion(), deployment.POM, opts.Stderr)
}

// checkSize returns an error if opts.Dir contains a cluster with a different number of brokers.
// That number cannot change, because formatting fixes the voters of the metadata log.
func checkSize(opts launch.Options) error {
	nodes, err := filepath.Glob(filepath.Join(opts.Dir, "node-*"))
	if err != nil || len(nodes) == 0 || len(nodes) == opts.Brokers || opts.Node > 0 {
		return err
	}
	return fmt.Errorf("cannot run %d brokers in %s: it contains a cluster of %d; use that number or a different directory",
		opts.Brokers, opts.Dir, len(nodes))
}

type node struct {
	opts       launch.Options
	id         int
	dir        string
	java, jars string
}

// internalPort is the port on which brokers with hosts of their own serve each other. PickPort
// never returns it.
const internalPort = 9091

// start writes the configuration, formats the directory the first time, and starts the node. It
// does not wait until the node is ready, because nodes become ready only when a majority is
// running.
func (n node) start(ctx context.Context, failed func(error)) (p *launch.Process, err error) {
	defer must.Return(&err, fmt.Sprintf("cannot start Kafka broker %d", n.id))
	must.Do(os.MkdirAll(n.dir, 0o755))
	must.Do(os.WriteFile(filepath.Join(n.dir, "log4j2.properties"), log4jProperties, 0o644))
	must.Do(os.WriteFile(filepath.Join(n.dir, "server.properties"), n.properties(), 0o644))
	if _, err := os.Stat(filepath.Join(n.dir, "data", "meta.properties")); err != nil { // running the tool takes 0.7 s
		var out bytes.Buffer
		format := n.command("kafka.tools.StorageTool", "format", "--ignore-formatted", "--cluster-id", clusterID, "--config", "server.properties")
		format.Stdout, format.Stderr = &out, &out
		if err := launch.Run(ctx, format); err != nil {
			return nil, fmt.Errorf("cannot format the directory of Kafka broker %d: %w\n%s", n.id, err, out.String())
		}
	}
	console := must.Get(os.Create(filepath.Join(n.dir, "console.log")))
	defer console.Close()
	cmd := n.command("kafka.Kafka", "server.properties")
	cmd.Stdout, cmd.Stderr = console, console
	return launch.Start(cmd, failed)
}

func (n node) command(class string, args ...string) *exec.Cmd {
	cmd := exec.Command(n.java, javaOptions...)
	cmd.Args = append(cmd.Args, "-Djava.io.tmpdir="+n.dir, // even after a kill, unpacked libraries are removed with the directory
		"-Dlog4j2.configurationFile="+filepath.Join(n.dir, "log4j2.properties"), "-Dtrafficd.logs="+n.dir,
		"-cp", filepath.Join(n.jars, "*"), class)
	cmd.Args = append(cmd.Args, args...)
	cmd.Dir = n.dir
	return cmd
}

//go:embed log4j2.properties
var log4jProperties []byte

//go:embed server.properties
var serverProperties string

var propertiesTemplate = template.Must(template.New("server.properties").Parse(serverProperties))

func (n node) properties() []byte {
	own := n.opts.Hosts.At(n.id - 1)
	address := own.Endpoint(n.opts.KafkaPorts[n.id-1]).String()
	advertised := address
	if len(n.opts.Advertised) > 0 {
		advertised = n.opts.Advertised[n.id-1]
	}
	var voters []string
	for i, port := range n.opts.Controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, n.opts.Hosts.At(i).Endpoint(port)))
	}
	var text bytes.Buffer
	internal := ""
	if len(n.opts.Hosts) > 0 { // brokers reach each other directly, not at the addresses that clients use
		internal = own.Endpoint(internalPort).String()
	}
	err := propertiesTemplate.Execute(&text, map[string]any{
		"Node": n.id, "Dir": n.dir, "Address": address, "Advertised": advertised,
		"Controller": own.Endpoint(n.opts.Controllers[n.id-1]), "Internal": internal, "Voters": strings.Join(voters, ","),
		"Partitions": n.opts.Partitions, "Replicas": min(3, n.opts.Brokers), "Properties": n.opts.Properties,
	})
	if err != nil {
		panic(err) // the template is constant
	}
	return text.Bytes()
}

func apacheVersion() string {
	var pom struct {
		Version string `xml:"properties>kafka.version"`
	}
	if err := xml.Unmarshal(deployment.POM, &pom); err != nil {
		return "unknown"
	}
	return strings.TrimSpace(pom.Version)
}
