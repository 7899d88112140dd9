package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trafficd/cmd/devstores/internal/loopback"
	"trafficd/cmd/devstores/internal/process"
)

// apacheStopLimit: a clean stop takes 0.2–2 s; whoever is killed recovers its log at the next start.
const apacheStopLimit = 20 * time.Second

// javaOptions keep a broker small and quick to start: nobody here needs its best throughput after an hour.
var javaOptions = []string{"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-XX:-UsePerfData"}

// apache is a cluster of Apache Kafka: every node is broker and controller.
type apache struct {
	cfg         Config
	java        string
	jars        string
	controllers []int // ports
	procs       []*process.Process
}

func startApache(ctx context.Context, cfg Config, failed func(error)) (*Server, error) {
	a := &apache{cfg: cfg}
	var err error
	if a.java, err = exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("cannot run Apache Kafka: %w; install a Java 17 or newer, or take the broker %s", err, KindFake)
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
	info := Info{Kind: KindApache, Version: apacheVersion()}
	for _, node := range cfg.nodes() {
		info.Brokers = append(info.Brokers, loopback.Address(cfg.Ports[node-1]))
	}
	for _, p := range a.procs {
		info.PIDs = append(info.PIDs, p.PID())
	}
	return &Server{Info: info, stop: a.stop}, nil
}

// pickControllers finds ports for the controllers' own listeners. They may change from start to start: nobody else knows them, unless
// each node is run by itself.
func pickControllers(cfg Config) ([]int, error) {
	if cfg.Node > 0 {
		_, err := loopback.Pick(fmt.Sprintf("Kafka controller %d", cfg.Node), cfg.Controllers[cfg.Node-1])
		return cfg.Controllers, err
	}
	var ports []int
	for i := range cfg.Brokers {
		port, err := loopback.Pick(fmt.Sprintf("Kafka controller %d", i+1), 0)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// checkSize refuses a folder of another cluster size: the voters of the metadata log are fixed when it is formatted.
func (a *apache) checkSize() error {
	nodes, err := filepath.Glob(filepath.Join(a.cfg.Dir, "node-*"))
	if err != nil || len(nodes) == 0 || len(nodes) == a.cfg.Brokers || a.cfg.Node > 0 {
		return err
	}
	return fmt.Errorf("cannot run %d brokers in %s: it holds a cluster of %d; give that number or another folder", a.cfg.Brokers, a.cfg.Dir, len(nodes))
}

func (a *apache) nodeDir(node int) string {
	return filepath.Join(a.cfg.Dir, "node-"+strconv.Itoa(node))
}

// prepareNode writes a node's configuration and, the first time, formats its folder.
func (a *apache) prepareNode(ctx context.Context, node int) error {
	dir := a.nodeDir(node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make a broker's folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log4j2.properties"), log4jProperties, 0o644); err != nil {
		return fmt.Errorf("cannot write a broker's configuration: %w", err)
	}
	properties := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(properties, a.properties(node), 0o644); err != nil {
		return fmt.Errorf("cannot write a broker's configuration: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "meta.properties")); err == nil {
		return nil // formatted; the tool would find out as well, in 0.7 s
	}
	return a.format(ctx, node, properties)
}

// clusterID is any UUID in Kafka's spelling; the clusters never meet, so it may be the same for all.
const clusterID = "dHJhZmZpY2QtZGV2c3Rvcg"

func (a *apache) format(ctx context.Context, node int, properties string) error {
	var said strings.Builder
	cmd := a.command(node, "kafka.tools.StorageTool", "format", "--ignore-formatted", "--cluster-id", clusterID, "--config", properties)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := process.Run(ctx, cmd, func() {}); err != nil {
		return fmt.Errorf("cannot format the folder of Kafka broker %d: %w\n%s", node, err, said.String())
	}
	return nil
}

func (a *apache) command(node int, class string, args ...string) *exec.Cmd {
	dir := a.nodeDir(node)
	line := append([]string{}, javaOptions...)
	line = append(line, "-Djava.io.tmpdir="+dir, // a library that is unpacked there goes with the folder, also after a kill
		"-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.properties"), "-Dtrafficd.logs="+dir,
		"-cp", filepath.Join(a.jars, "*"), class)
	cmd := exec.Command(a.java, append(line, args...)...)
	cmd.Dir = dir
	return cmd
}

// launch starts the nodes: none of them is ready before most are there.
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
	p, err := process.Start(cmd, failed)
	if err != nil {
		return err
	}
	a.procs = append(a.procs, p)
	return nil
}

// stop ends all nodes together: one after the other, the last would wait in vain for a controller to let it go.
func (a *apache) stop() error {
	errs := make([]error, len(a.procs))
	var all sync.WaitGroup
	for i, p := range a.procs {
		all.Go(func() { errs[i] = p.Stop(apacheStopLimit) })
	}
	all.Wait()
	return errors.Join(errs...)
}
