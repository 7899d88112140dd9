package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/cmd/internal/launch"
)

func (q *quickstart) startDaemon(context.Context) error {
	q.daemon = &launch.Daemon{
		Binary: q.bin("trafficd"), Dir: q.dir, Args: []string{"--config", q.path("trafficd.yaml")}, OnDeath: unix.SIGTERM,
		API: launch.Address(freePort(8080)), Ops: launch.Address(freePort(8081)),
	}
	say("starting trafficd on %s", q.daemon.API)
	if err := q.writeConfig(); err != nil {
		return err
	}
	q.started = time.Now()
	return q.daemon.Start()
}

// restart starts the daemon again, unless it exited with an error right after its start: it would do so again.
func (q *quickstart) restart() error {
	state := q.daemon.State()
	if state.ExitCode() >= 0 && time.Since(q.started) < time.Second {
		return fmt.Errorf("trafficd exits immediately (%s); its log ends:\n%s", state, q.daemon.LogTail())
	}
	q.started = time.Now()
	if err := q.daemon.Start(); err != nil {
		return err
	}
	q.restarts++
	say("trafficd exited (%s) and was restarted as process %d; clients retry, nothing is lost", state, q.daemon.PID())
	return nil
}

// awaitReady waits until /readyz returns 200.
func (q *quickstart) awaitReady(ctx context.Context) error {
	return q.within(ctx, 30*time.Second, "trafficd did not become ready", func() error {
		status, body := q.daemon.Readyz(ctx)
		if status == http.StatusOK {
			return nil
		}
		return errors.New(body)
	})
}

//go:embed trafficd.yaml
var configText string

// daemonConfig is a small configuration to read and to change.
var daemonConfig = template.Must(template.New("trafficd.yaml").Parse(configText))

func (q *quickstart) writeConfig() error {
	var text bytes.Buffer
	err := daemonConfig.Execute(&text, map[string]string{
		"API": q.daemon.API, "Ops": q.daemon.Ops, "Keys": q.path(keysFile),
		"Instance": instance, "Registry": q.source.registry, "Column": q.source.column,
		"Journal":    q.path("journal"),
		"ClickHouse": q.stores.ClickHouse.TCP, "Database": database,
		"Brokers": strings.Join(q.stores.Kafka.Brokers, ", "), "Topic": topic, "ForecastTopic": forecastTopic,
	})
	if err == nil {
		err = os.WriteFile(q.path("trafficd.yaml"), text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}
