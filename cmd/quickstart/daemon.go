package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"text/template"
	"time"
)

// startDaemon starts trafficd, also after it was killed.
func (q *quickstart) startDaemon(context.Context) error {
	if q.API == "" {
		q.API, q.Ops = "127.0.0.1:"+free(8080), "127.0.0.1:"+free(8081)
		say("starting trafficd on %s", q.API)
	}
	if err := q.writeConfig(); err != nil {
		return err
	}
	log, err := logFile(q.path("trafficd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(q.bin("trafficd"), "--config", q.path("trafficd.yaml"))
	cmd.Dir = q.dir
	cmd.Stdout, cmd.Stderr = log, log
	q.started = time.Now()
	q.daemon, err = q.children.start("trafficd", cmd)
	return err
}

// until waits for done, and keeps the daemon alive meanwhile.
func (q *quickstart) until(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.stores.done:
			return fmt.Errorf("the stores have ended (%s): see %s", q.stores.cmd.ProcessState, q.short(q.path("devstores.log")))
		case <-q.daemon.done:
			if err := q.revive(ctx); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// revive starts the daemon again, unless it ended by itself right at its start:
// then it would do so again.
func (q *quickstart) revive(ctx context.Context) error {
	if q.daemon.exitCode() >= 0 && time.Since(q.started) < time.Second {
		return fmt.Errorf("trafficd does not stay up (%s); the end of its log:\n%s", q.daemon.cmd.ProcessState, tail(q.path("trafficd.log"), 2000))
	}
	why := q.daemon.cmd.ProcessState.String()
	if err := q.startDaemon(ctx); err != nil {
		return err
	}
	q.restarts++
	say("trafficd has ended (%s): started again, process %d; clients retry, nothing is lost", why, q.daemon.cmd.Process.Pid)
	return nil
}

// awaitReady waits for /readyz and says what is missing if it takes long.
func (q *quickstart) awaitReady(ctx context.Context) error {
	deadline := time.Now().Add(30 * time.Second)
	return q.until(ctx, func() (bool, error) {
		status, body := q.readyz(ctx)
		if status == http.StatusOK {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("trafficd does not get ready: %s\nsee %s", body, q.short(q.path("trafficd.log")))
		}
		return false, nil
	})
}

func (q *quickstart) readyz(ctx context.Context) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+q.Ops+"/readyz", nil)
	if err != nil {
		return 0, err.Error()
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body := new(strings.Builder)
	_, _ = bufio.NewReader(r.Body).WriteTo(body)
	return r.StatusCode, body.String()
}

// daemonConfig is a small real configuration: a newcomer reads it and changes it.
var daemonConfig = template.Must(template.New("trafficd.yaml").Parse(`# Written by quickstart at each start. trafficd --print-config shows every other key.
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

// writeConfig writes the daemon's configuration into the folder.
func (q *quickstart) writeConfig() error {
	var text strings.Builder
	err := daemonConfig.Execute(&text, map[string]string{
		"API": q.API, "Ops": q.Ops, "Keys": q.path(keysFile),
		"Instance": instance, "Registry": q.source.registry, "Column": q.source.column,
		"Journal":    q.path("journal"),
		"ClickHouse": q.ClickHouse.TCP, "Database": database,
		"Brokers": strings.Join(q.Kafka.Brokers, ", "), "Topic": topic, "ForecastTopic": forecastTopic,
	})
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	if err := os.WriteFile(q.path("trafficd.yaml"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}
