package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/template"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/cmd/internal/ops"
)

const (
	rejectedFile = "rejected.ndjson"
	sampleFile   = "sample.json"
)

// sent is the summary that `trafficctl send --json` prints.
type sent struct {
	Accepted uint64  `json:"accepted"`
	Rejected uint64  `json:"rejected"`
	Batches  uint64  `json:"batches"`
	Retries  uint64  `json:"retries"`
	Seconds  float64 `json:"seconds"`

	Codes map[string]uint64 `json:"codes"` // number of rejections by error code
}

// arrived reports whether both stores received exactly the accepted items. It ignores count()
// FINAL, because a measurement that is sent again replaces the earlier one.
func (s sent) arrived(now counts) bool {
	return now.Inserted == s.Accepted && now.Records == s.Accepted
}

// sendAndCount sends the traffic, waits until both stores have it, starts the forecaster, and
// prints a report. It returns an error if the counts differ.
func (q *quickstart) sendAndCount(ctx context.Context) (err error) {
	defer must.Return(&err)
	var before, after counts
	must.Do(launch.Eventually(ctx, 30*time.Second, func() (err error) { // trafficd may be creating the table
		before, err = q.count(ctx)
		return err
	}))
	must.Do(q.writeSample())
	if q.source.make != nil {
		say("generating %s", q.source.about)
		must.Do(q.source.make(ctx))
	}
	say("sending %s", q.source.about)
	_ = os.Remove(q.path(rejectedFile)) // left by the last run
	text, _, err := q.trafficctl(ctx, os.Stderr, append([]string{
		"send", q.source.file, "--url", "http://" + q.daemon.API, "--key-file", q.path(keyFile),
		"--rejected", q.path(rejectedFile), "--json",
	}, q.source.flags...)...)
	must.Do(err)
	var s sent
	must.Do(json.Unmarshal([]byte(text), &s), fmt.Sprintf("cannot parse trafficctl's summary %q", text))
	say("waiting until both stores have everything")
	must.Do(awaitDelivered(ctx, q.daemon, time.Minute))
	mismatch := launch.Eventually(ctx, 5*time.Second, func() (err error) {
		if after, err = q.count(ctx); err == nil && !s.arrived(after.minus(before)) {
			err = errors.New("the stores do not have exactly the accepted items")
		}
		return err
	})
	say("starting the forecaster, which learns from the archive")
	must.Do(q.start(ctx, q.forecaster, 2*time.Minute)) // not earlier, because it learns each day only once
	layer := ""
	must.Do(launch.Eventually(ctx, 30*time.Second, func() (err error) { // the daemon may be restarting
		layer, err = q.layer(ctx)
		return err
	}))
	return errors.Join(q.report(os.Stdout, s, after.minus(before), after, layer), mismatch)
}

// awaitDelivered waits until both stores have everything. It returns an error with the reason if
// there is no progress for the given time, in which the daemon may be restarted.
func awaitDelivered(ctx context.Context, d *launch.Daemon, patience time.Duration) error {
	last, since := "", time.Now()
	for {
		err := d.Delivered(ctx)
		if err == nil {
			return nil
		}
		if err.Error() != last {
			last, since = err.Error(), time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("cannot deliver to both stores: no progress for %v: %w%s", patience, err, storeReasons(ctx, d))
		}
		if !launch.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// storeReasons returns what trafficd reports about the stores, each reason after a separator.
func storeReasons(ctx context.Context, d *launch.Daemon) (all string) {
	var r ops.Readiness
	_, body := d.Readyz(ctx)
	_ = json.Unmarshal([]byte(body), &r) // an error: trafficd does not respond, and there are no reasons
	for _, store := range []string{"clickhouse", "kafka"} {
		for _, reason := range r.Components[store].Reasons {
			all += "; " + store + ": " + reason
		}
	}
	return all
}

// layer returns a description of the forecast layer, or an error if it is empty.
func (q *quickstart) layer(ctx context.Context) (string, error) {
	_, text, err := q.trafficctl(ctx, nil, "forecast", "get", "--url", "http://"+q.daemon.API, "--key-file", q.path(keyFile),
		"--format", "protobuf")
	if err != nil {
		return "", err
	}
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "trafficctl: "), ", ETag")
	if strings.HasPrefix(text, "0 streets") {
		return "", errors.New("the forecast layer is empty")
	}
	return text, nil
}

//go:embed report.txt
var reportText string

func (q *quickstart) report(w io.Writer, s sent, now, total counts, layer string) error {
	return q.render(w, reportText, map[string]any{
		"Items": s.Accepted + s.Rejected, "Rate": uint64(float64(s.Accepted+s.Rejected) / max(s.Seconds, 1e-3)),
		"Sent": s, "Now": now, "Total": total, "Again": now.Inserted - now.Final, "Earlier": total.Final > now.Final, "Agree": s.arrived(now),
		"Layer": layer, "Source": q.source, "Step": liveStep, "ForecastTopic": forecastTopic,
	})
}

// render prints a report with its values, and those that all reports have.
func (q *quickstart) render(w io.Writer, text string, values map[string]any) error {
	maps.Copy(values, map[string]any{
		"Restarts": q.restarts.Load(), "Key": q.key, "Live": !q.exit,
		"API": q.daemon.API, "Ops": q.daemon.Ops, "FeederOps": q.feeder.Ops,
		"ClickHouse": q.stores.ClickHouse, "Table": table,
		"Broker": q.stores.Kafka.Brokers[0], "BrokerKind": q.stores.Kafka.Kind, "Topic": topic,
	})
	report, err := template.New("report").Funcs(template.FuncMap{
		"thousands": thousands,
		"path":      func(name string) string { return q.short(q.path(name)) },
		"program":   func(name string) string { return q.short(q.bin(name)) },
		"install": func(program, debian string) string {
			if _, err := exec.LookPath(program); err == nil {
				return ""
			}
			return " (" + program + ": apt-get install " + debian + ")"
		},
	}).Parse(text)
	if err == nil {
		err = report.Execute(w, values)
	}
	if err != nil {
		return fmt.Errorf("cannot print the report: %w", err)
	}
	return nil
}

// thousands formats a number with thousands separators. The number may be a negative difference, if
// merges replaced earlier rows.
func thousands(n uint64) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// counts holds numbers from the stores, or their growth.
type counts struct {
	Inserted uint64 // rows of all inserts, from system.part_log
	Final    uint64 // count() FINAL: a measurement that is sent again replaces the earlier one
	Records  uint64 // records in all partitions of the topic
}

func (c counts) minus(o counts) counts {
	return counts{c.Inserted - o.Inserted, c.Final - o.Final, c.Records - o.Records}
}

func (q *quickstart) count(ctx context.Context) (c counts, err error) {
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	must.Get(q.stores.ClickHouse.Do(ctx, "SYSTEM FLUSH LOGS")) // also creates system.part_log
	text := must.Get(q.stores.ClickHouse.Do(ctx, "SELECT (SELECT sum(rows) FROM system.part_log WHERE event_type = 'NewPart' AND error = 0"+
		" AND database = '"+database+"' AND table = 'measurements'), (SELECT count() FROM "+table+" FINAL)"))
	must.Get(fmt.Sscan(text, &c.Inserted, &c.Final))
	c.Records = uint64(must.Get(launch.CountRecords(ctx, q.stores.Kafka.Brokers, topic)))
	return c, nil
}
