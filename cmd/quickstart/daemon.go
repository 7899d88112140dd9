package main

import (
	"context"
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
	deadline := time.Now().Add(30 * time.Second)
	return q.until(ctx, func() (bool, error) {
		status, body := q.daemon.Readyz(ctx)
		if status != http.StatusOK && time.Now().After(deadline) {
			return false, fmt.Errorf("trafficd did not become ready: %s\nsee %s", body, q.short(q.path("trafficd.log")))
		}
		return status == http.StatusOK, nil
	})
}

// daemonConfig is a small configuration to read and to change.
var daemonConfig = template.Must(template.New("trafficd.yaml").Parse(`# Written by quickstart at each start. trafficd --print-config prints every setting.
log:
  format: console
ops:
  listen: {{.Ops}}
api:
  listen: {{.API}}
  keys_file: {{.Keys}}
registry:
  feeds:
    - product_instance: {{.Instance}}
      file:
        path: {{.Registry}}
        format: csv
        column: {{.Column}}
journal:
  dir: {{.Journal}}
clickhouse:
  addresses: [{{.ClickHouse}}]
  database: {{.Database}}
kafka:
  brokers: [{{.Brokers}}]
  topic: {{.Topic}}
forecasts:
  feed: kafka
  kafka:
    brokers: [{{.Brokers}}]
    topic: {{.ForecastTopic}}
`))

func (q *quickstart) writeConfig() error {
	var text strings.Builder
	err := daemonConfig.Execute(&text, map[string]string{
		"API": q.daemon.API, "Ops": q.daemon.Ops, "Keys": q.path(keysFile),
		"Instance": instance, "Registry": q.source.registry, "Column": q.source.column,
		"Journal":    q.path("journal"),
		"ClickHouse": q.stores.ClickHouse.TCP, "Database": database,
		"Brokers": strings.Join(q.stores.Kafka.Brokers, ", "), "Topic": topic, "ForecastTopic": forecastTopic,
	})
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	if err := os.WriteFile(q.path("trafficd.yaml"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}
