package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trafficd/cmd/devstores/internal/cache"
	"trafficd/cmd/devstores/internal/progress"
	"trafficd/cmd/internal/launch"
	deployment "trafficd/deployments/kafka"
)

// apacheStopLimit: a clean stop takes 0.2–2 s; a killed broker recovers its log at the next start.
const apacheStopLimit = 20 * time.Second

// javaOptions keep a broker small and quick to start rather than fast in the long run.
var javaOptions = []string{"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-XX:-UsePerfData"}

// apache is a cluster of Apache Kafka: every node is broker and controller.
type apache struct {
	cfg         Config
	java        string
	jars        string
	controllers []int // ports
	procs       []*launch.Process
}

func startApache(ctx context.Context, cfg Config, failed func(error)) (*Server, error) {
	a := &apache{cfg: cfg}
	var err error
	if a.java, err = exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("cannot run Apache Kafka: %w; install Java 17 or newer, or use the broker %s", err, launch.Kfake)
	}
	if a.jars, err = fetchJars(ctx, cfg.Progress); err != nil {
		return nil, err
	}
	if a.controllers, err = pickControllers(cfg); err != nil {
		return nil, err
	}
	if err := a.checkSize(); err != nil {
		return nil, err
	}
	for _, node := range cfg.nodes() {
		if err := a.prepareNode(ctx, node); err != nil {
			return nil, err
		}
	}
	if err := a.launch(failed); err != nil {
		a.stop()
		return nil, err
	}
	info := launch.KafkaInfo{Kind: launch.Apache, Version: apacheVersion()}
	for _, node := range cfg.nodes() {
		info.Brokers = append(info.Brokers, launch.Address(cfg.Ports[node-1]))
	}
	for _, p := range a.procs {
		info.PIDs = append(info.PIDs, p.PID())
	}
	return &Server{KafkaInfo: info, stop: a.stop}, nil
}

// pickControllers finds ports for the controllers' own listeners. They may change from start to start, unless each node
// is run separately.
func pickControllers(cfg Config) ([]int, error) {
	if cfg.Node > 0 {
		_, err := launch.PickPort(fmt.Sprintf("Kafka controller %d", cfg.Node), cfg.Controllers[cfg.Node-1])
		return cfg.Controllers, err
	}
	return launch.PickPorts("Kafka controller", cfg.Brokers)
}

// checkSize rejects a directory of another cluster size: the voters of the metadata log are fixed when it is formatted.
func (a *apache) checkSize() error {
	nodes, err := filepath.Glob(filepath.Join(a.cfg.Dir, "node-*"))
	if err != nil || len(nodes) == 0 || len(nodes) == a.cfg.Brokers || a.cfg.Node > 0 {
		return err
	}
	return fmt.Errorf("cannot run %d brokers in %s: it contains a cluster of %d; use that number or another directory", a.cfg.Brokers, a.cfg.Dir, len(nodes))
}

func (a *apache) nodeDir(node int) string {
	return filepath.Join(a.cfg.Dir, "node-"+strconv.Itoa(node))
}

// prepareNode writes a node's configuration and, the first time, formats its directory.
func (a *apache) prepareNode(ctx context.Context, node int) error {
	dir := a.nodeDir(node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create a broker's directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log4j2.properties"), log4jProperties, 0o644); err != nil {
		return fmt.Errorf("cannot write a broker's configuration: %w", err)
	}
	properties := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(properties, a.properties(node), 0o644); err != nil {
		return fmt.Errorf("cannot write a broker's configuration: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "meta.properties")); err == nil {
		return nil // formatted; asking the tool would take 0.7 s
	}
	return a.format(ctx, node, properties)
}

// clusterID is a UUID in Kafka's encoding. All clusters may share it: they never communicate.
const clusterID = "dHJhZmZpY2QtZGV2c3Rvcg"

func (a *apache) format(ctx context.Context, node int, properties string) error {
	var out strings.Builder
	cmd := a.command(node, "kafka.tools.StorageTool", "format", "--ignore-formatted", "--cluster-id", clusterID, "--config", properties)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := launch.Run(ctx, cmd, func() {}); err != nil {
		return fmt.Errorf("cannot format the directory of Kafka broker %d: %w\n%s", node, err, out.String())
	}
	return nil
}

func (a *apache) command(node int, class string, args ...string) *exec.Cmd {
	dir := a.nodeDir(node)
	line := append([]string{}, javaOptions...)
	line = append(line, "-Djava.io.tmpdir="+dir, // libraries unpacked there are removed with the directory, even after a kill
		"-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.properties"), "-Dtrafficd.logs="+dir,
		"-cp", filepath.Join(a.jars, "*"), class)
	cmd := exec.Command(a.java, append(line, args...)...)
	cmd.Dir = dir
	return cmd
}

// launch starts the nodes without waiting: none is ready before most are running.
func (a *apache) launch(failed func(error)) error {
	for _, node := range a.cfg.nodes() {
		if err := a.startNode(node, failed); err != nil {
			return err
		}
	}
	return nil
}

func (a *apache) startNode(node int, failed func(error)) error {
	console, err := os.Create(filepath.Join(a.nodeDir(node), "console.log"))
	if err != nil {
		return fmt.Errorf("cannot open a broker's console log: %w", err)
	}
	defer console.Close()
	cmd := a.command(node, "kafka.Kafka", "server.properties")
	cmd.Stdout, cmd.Stderr = console, console
	p, err := launch.Start(cmd, failed)
	if err != nil {
		return err
	}
	a.procs = append(a.procs, p)
	return nil
}

// stop stops all nodes at once: one by one, the last would wait for a controller that is gone.
func (a *apache) stop() error {
	errs := make([]error, len(a.procs))
	var all sync.WaitGroup
	for i, p := range a.procs {
		all.Go(func() { errs[i] = p.Stop(apacheStopLimit) })
	}
	all.Wait()
	return errors.Join(errs...)
}

//go:embed log4j2.properties
var log4jProperties []byte

// properties returns the server.properties of a node: ours, overridden by the caller's.
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

// network returns a node's id, listeners and voters.
func (a *apache) network(node int) map[string]string {
	client := "PLAINTEXT://" + launch.Address(a.cfg.Ports[node-1])
	advertised := client
	if len(a.cfg.Advertised) > 0 {
		advertised = "PLAINTEXT://" + a.cfg.Advertised[node-1]
	}
	var voters []string
	for i, port := range a.controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, launch.Address(port)))
	}
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(node),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      client + ",CONTROLLER://" + launch.Address(a.controllers[node-1]),
		"advertised.listeners":           advertised,
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "PLAINTEXT",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		// A killed broker may register again only when its old session has expired: by default a restart would wait 9 s.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
	}
}

// sizes returns settings for one machine: as many replicas as brokers, up to three, and few partitions of internal topics.
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

// fetchJars returns the directory with Apache Kafka's jars, which Maven downloads the first time. A changed pom is another entry.
func fetchJars(ctx context.Context, log io.Writer) (string, error) {
	name := fmt.Sprintf("kafka-%s-%x", apacheVersion(), sha256.Sum256(deployment.POM))[:len("kafka-")+len(apacheVersion())+9]
	return cache.Entry(ctx, name, log, func(dir string) error { return copyJars(ctx, dir, log) })
}

func copyJars(ctx context.Context, dir string, log io.Writer) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w; install Maven, or use the broker %s", err, launch.Kfake)
	}
	work, err := os.MkdirTemp(dir, "mvn-")
	if err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w", err)
	}
	defer os.RemoveAll(work)
	pom := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(pom, deployment.POM, 0o644); err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w", err)
	}
	meter := progress.Files(log, "fetching Apache Kafka "+apacheVersion()+" with Maven")
	out := &mavenLog{}
	cmd := exec.Command(mvn, "--batch-mode", "--strict-checksums", "--file", pom,
		"dependency:copy-dependencies", "-DoutputDirectory="+dir)
	cmd.Stdout, cmd.Stderr = out, out
	if err := launch.Run(ctx, cmd, func() { meter.Set(out.files()) }); err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka with Maven: %w\n%s", err, out.errors())
	}
	meter.Done()
	return nil
}

// apacheVersion returns the version pinned by the pom.
func apacheVersion() string {
	var pom struct {
		Version string `xml:"properties>kafka.version"`
	}
	if err := xml.Unmarshal(deployment.POM, &pom); err != nil {
		return "unknown"
	}
	return strings.TrimSpace(pom.Version)
}

// mavenLog collects Maven's output, for the progress and for errors. One goroutine writes, another reads.
type mavenLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *mavenLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *mavenLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// files returns the number of files downloaded and copied.
func (l *mavenLog) files() int64 {
	text := l.String()
	return int64(strings.Count(text, "Downloaded from ") + strings.Count(text, "Copying "))
}

// errors returns the first lines marked as errors.
func (l *mavenLog) errors() string {
	var marked []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "ERROR") {
			marked = append(marked, line)
		}
	}
	return strings.Join(marked[:min(len(marked), 8)], "")
}
