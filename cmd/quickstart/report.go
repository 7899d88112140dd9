package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"text/template"
)

// Paths of contract 1 and 2.
const (
	ingestPath   = "/dataprovider/ingestion/v1/detectors/data/ingest"
	forecastPath = "/mlf/v1/forecast/realtime"
)

//go:embed report.txt
var reportText string

// report prints counts, addresses and commands that work unchanged, on one screen. It returns an error if the counts differ.
func (q *quickstart) report(w io.Writer, s sent, now, total counts, layer served) error {
	report, err := template.New("report.txt").Funcs(template.FuncMap{
		"thousands": thousands,
		"path":      func(name string) string { return q.short(q.path(name)) },
		"installed": func(program string) bool { _, err := exec.LookPath(program); return err == nil },
	}).Parse(reportText)
	if err != nil {
		return err
	}
	err = report.Execute(w, map[string]any{
		"Items": s.Accepted + s.Rejected, "Rate": rate(s), "Sent": s, "Now": now, "Total": total, "Agree": s.arrived(now),
		"Restarts": q.restarts, "Layer": layer, "Key": q.key, "Exit": q.exit,
		"API": q.daemon.API, "Ops": q.daemon.Ops, "IngestPath": ingestPath, "ForecastPath": forecastPath,
		"ClickHouse": q.stores.ClickHouse, "Table": table,
		"Broker": q.stores.Kafka.Brokers[0], "BrokerKind": q.stores.Kafka.Kind, "Topic": topic, "ForecastTopic": forecastTopic,
	})
	if err != nil {
		return fmt.Errorf("cannot print the report: %w", err)
	}
	if !s.arrived(now) {
		return errors.New("the stores do not have exactly what was accepted")
	}
	return nil
}

// arrived reports whether the stores received exactly what was accepted. count() FINAL is not compared: a measurement that
// was sent before replaces the earlier one.
func (s sent) arrived(now counts) bool {
	return now.Inserted == s.Accepted && now.Records == s.Accepted
}

// thousands formats a number with separators.
func thousands(n uint64) string {
	if n > math.MaxInt64 { // a negative difference: merges replaced earlier rows
		return "-" + thousands(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func rate(s sent) uint64 {
	if s.Seconds <= 0 {
		return 0
	}
	return uint64(float64(s.Accepted+s.Rejected) / s.Seconds)
}
