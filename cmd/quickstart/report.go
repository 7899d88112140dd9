package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
)

// The paths are those of the contract 1, and of contract 3.
const (
	ingestPath  = "/dataprovider/ingestion/v1/detectors/data/ingest"
	routingPath = "/xroute/ws/XRoute"
)

// report prints what a newcomer wants to know, on one screen. The error says
// that the stores do not hold what was accepted.
func (q *quickstart) report(w io.Writer, s sent, now, total counts, layer served) error {
	agree := s.arrived(now)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("")
	line("  sent         %14s  measurements in %s batches, %.1f s: %s a second", thousands(s.Accepted+s.Rejected), thousands(s.Batches), s.Seconds, thousands(rate(s)))
	line("  accepted     %14s", thousands(s.Accepted))
	line("  rejected     %14s%s", thousands(s.Rejected), q.reasons(s))
	line("")
	line("  what stands in the stores       this run          total")
	line("  ClickHouse   rows inserted %14s                 system.part_log", thousands(now.Inserted))
	for _, row := range []struct {
		name       string
		now, total uint64
		how        string
	}{
		{"             count() FINAL", now.Final, total.Final, "each measurement once"},
		{"Kafka        records", uint64(now.Records), uint64(total.Records), "by the offsets of " + topic},
	} {
		line("  %-26s %14s %14s  %s", row.name, thousands(row.now), thousands(row.total), row.how)
	}
	if agree {
		line("  ✓ every accepted measurement is in both stores, exactly once%s", q.afterRestarts(s))
	} else {
		line("  ✗ rows inserted and records differ from what was accepted%s", q.afterRestarts(s))
	}
	line("  ✓ the forecast layer is served: %s", layer)
	line("")
	q.printAddresses(line)
	line("")
	q.printCommands(line)
	if !q.exit {
		line("\n  Ctrl-C ends everything; the next start goes on with the same data.")
	}
	if !agree {
		return errors.New("the counts do not agree")
	}
	return nil
}

// arrived tells whether the stores hold exactly what was accepted. A measurement
// that was sent before replaces its earlier self, so count() does not tell.
func (s sent) arrived(now counts) bool {
	return now.Inserted == s.Accepted && uint64(now.Records) == s.Accepted
}

// reasons says where to look for what was rejected.
func (q *quickstart) reasons(s sent) string {
	if s.Rejected == 0 {
		return ""
	}
	return fmt.Sprintf("  for %d different reasons; each stands in %s", len(s.Codes), q.short(q.path(rejectedFile)))
}

func (q *quickstart) afterRestarts(s sent) string {
	if q.restarts == 0 {
		return ""
	}
	return fmt.Sprintf(" (trafficd was restarted %d ×, trafficctl sent %d × again)", q.restarts, s.Retries)
}

func (q *quickstart) printAddresses(line func(string, ...any)) {
	line("  batches      http://%s%s", q.API, ingestPath)
	line("  forecasts    http://%s%s", q.API, forecastPath)
	line("  routing      http://%s%s?WSDL", q.API, routingPath)
	line("  OpenAPI      http://%s/schemas/openapi.yaml", q.API)
	line("  operators    http://%s/metrics  /readyz", q.Ops)
	line("  ClickHouse   http://%s  native %s  (%s %s)", q.ClickHouse.HTTP, q.ClickHouse.TCP, q.ClickHouse.Kind, q.ClickHouse.Version)
	line("  Kafka        %s  topics %s, %s  (%s)", strings.Join(q.Kafka.Brokers, ","), topic, forecastTopic, q.Kafka.Kind)
	line("  key          Authorization: apiKey %s", q.key)
	line("  files        %s: trafficd.yaml, trafficd.log, keys.yaml, stores/ …", q.short(q.dir))
}

// printCommands prints commands that work as they stand.
func (q *quickstart) printCommands(line func(string, ...any)) {
	line("  # send a batch of two, one of them wrong")
	line(`  gzip -c %s | curl -i --data-binary @- -H @%s -H 'Content-Encoding: gzip' \`, q.short(q.path(sampleFile)), q.short(q.path(headerFile)))
	line(`    http://%s%s`, q.API, ingestPath)
	line("  # ask the archive")
	line(`  curl http://%s --data "SELECT measure_type_code, count(), avg(value) \`, q.ClickHouse.HTTP)
	line(`    FROM %s FINAL GROUP BY 1 FORMAT PrettyCompact"`, table)
	line("  # see what was forwarded last")
	line(`  %s`, q.consumer())
	line("  # get the forecasts for half an hour from now and decode them%s", missing("protoc", "protobuf-compiler"))
	line(`  curl -so %s http://%s/schemas/%s`, q.short(q.path(protoFile)), q.API, "trafficd/v1/"+protoFile)
	line(`  curl -s -H @%s 'http://%s%s?horizon=30' |`, q.short(q.path(headerFile)), q.API, forecastPath)
	line(`    protoc -I %s --decode trafficd.v1.StreetForecastResponse %s | head -15`, q.short(q.dir), protoFile)
	line("  # the same as a table")
	line(`  bin/trafficctl forecast get --key-file %s%s --horizon 30 | head`, q.short(q.path(keyFile)), q.urlFlag())
	line("  # convert a geometry by the routing web service")
	line(`  echo 'POINT (8.2505556 48.7627778)' |`)
	line(`    bin/trafficctl geometry --format-to VENDOR_CONFORM --key-file %s --url http://%s`, q.short(q.path(keyFile)), q.API)
}

// protoFile holds the messages of the layer, in what the daemon publishes.
const protoFile = "forecast.proto"

// missing names the package of a program that is not there.
func missing(program, aptPackage string) string {
	if _, err := exec.LookPath(program); err == nil {
		return ""
	}
	return fmt.Sprintf(" (%s: apt-get install %s)", program, aptPackage)
}

// urlFlag is for trafficctl, where the daemon is not at the usual address.
func (q *quickstart) urlFlag() string {
	if q.API == "127.0.0.1:8080" {
		return ""
	}
	return " --url http://" + q.API
}

// consumer is a command that shows records.
func (q *quickstart) consumer() string {
	if _, err := exec.LookPath("kcat"); err == nil {
		return fmt.Sprintf(`kcat -b %s -t %s -C -e -q -o -1 -f '%%p/%%o %%k %%h\n'`, q.Kafka.Brokers[0], topic)
	}
	return "go run ./cmd/quickstart tail --from start --brokers " + q.Kafka.Brokers[0]
}

// thousands writes a number with separators.
func thousands(n uint64) string {
	if n > math.MaxInt64 { // a difference below zero: merges replaced rows of before
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
