package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
)

// Paths of contract 1, 2 and 3.
const (
	ingestPath   = "/dataprovider/ingestion/v1/detectors/data/ingest"
	forecastPath = "/mlf/v1/forecast/realtime"
	routingPath  = "/xroute/ws/XRoute"
)

// report prints counts, addresses and commands on one screen. It returns an error if the counts differ.
func (q *quickstart) report(w io.Writer, s sent, now, total counts, layer served) error {
	agree := s.arrived(now)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("")
	line("  sent         %14s  measurements in %s batches, %.1f s: %s a second", thousands(s.Accepted+s.Rejected), thousands(s.Batches), s.Seconds, thousands(rate(s)))
	line("  accepted     %14s", thousands(s.Accepted))
	line("  rejected     %14s%s", thousands(s.Rejected), q.reasons(s))
	line("")
	line("  in the stores                   this run          total")
	line("  ClickHouse   rows inserted %14s                 system.part_log", thousands(now.Inserted))
	for _, row := range []struct {
		name       string
		now, total uint64
		how        string
	}{
		{"             count() FINAL", now.Final, total.Final, "each measurement once"},
		{"Kafka        records", uint64(now.Records), uint64(total.Records), "offsets of " + topic},
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
		line("\n  Ctrl-C stops everything; the next start uses the same data.")
	}
	if !agree {
		return errors.New("the stores do not have exactly what was accepted")
	}
	return nil
}

// arrived reports whether the stores received exactly what was accepted. count() FINAL is not compared: a measurement that
// was sent before replaces the earlier one.
func (s sent) arrived(now counts) bool {
	return now.Inserted == s.Accepted && uint64(now.Records) == s.Accepted
}

// reasons describes the rejections.
func (q *quickstart) reasons(s sent) string {
	if s.Rejected == 0 {
		return ""
	}
	return fmt.Sprintf("  for %d different reasons; see %s", len(s.Codes), q.short(q.path(rejectedFile)))
}

func (q *quickstart) afterRestarts(s sent) string {
	if q.restarts == 0 {
		return ""
	}
	return fmt.Sprintf(" (trafficd was restarted %d ×, trafficctl retried %d ×)", q.restarts, s.Retries)
}

func (q *quickstart) printAddresses(line func(string, ...any)) {
	line("  batches      http://%s%s", q.daemon.API, ingestPath)
	line("  forecasts    http://%s%s", q.daemon.API, forecastPath)
	line("  routing      http://%s%s?WSDL", q.daemon.API, routingPath)
	line("  OpenAPI      http://%s/schemas/openapi.yaml", q.daemon.API)
	line("  operators    http://%s/metrics  /readyz", q.daemon.Ops)
	line("  ClickHouse   http://%s  native %s  (%s %s)", q.stores.ClickHouse.HTTP, q.stores.ClickHouse.TCP, q.stores.ClickHouse.Kind, q.stores.ClickHouse.Version)
	line("  Kafka        %s  topics %s, %s  (%s)", strings.Join(q.stores.Kafka.Brokers, ","), topic, forecastTopic, q.stores.Kafka.Kind)
	line("  key          Authorization: apiKey %s", q.key)
	line("  files        %s: trafficd.yaml, trafficd.log, keys.yaml, stores/ …", q.short(q.dir))
}

// printCommands prints commands that work unchanged.
func (q *quickstart) printCommands(line func(string, ...any)) {
	line("  # send a batch of two items, one of them invalid")
	line(`  gzip -c %s | curl -i --data-binary @- -H @%s -H 'Content-Encoding: gzip' \`, q.short(q.path(sampleFile)), q.short(q.path(headerFile)))
	line(`    http://%s%s`, q.daemon.API, ingestPath)
	line("  # query the archive")
	line(`  curl http://%s --data "SELECT measure_type_code, count(), avg(value) \`, q.stores.ClickHouse.HTTP)
	line(`    FROM %s FINAL GROUP BY 1 FORMAT PrettyCompact"`, table)
	line("  # read forwarded measurements")
	line(`  %s`, q.consumer())
	line("  # get the forecasts for half an hour from now and decode them%s", missing("protoc", "protobuf-compiler"))
	line(`  curl -so %s http://%s/schemas/%s`, q.short(q.path(protoFile)), q.daemon.API, "trafficd/v1/"+protoFile)
	line(`  curl -s -H @%s 'http://%s%s?horizon=30' |`, q.short(q.path(headerFile)), q.daemon.API, forecastPath)
	line(`    protoc -I %s --decode trafficd.v1.StreetForecastResponse %s | head -15`, q.short(q.dir), protoFile)
	line("  # the same as a table")
	line(`  bin/trafficctl forecast get --key-file %s%s --horizon 30 | head`, q.short(q.path(keyFile)), q.urlFlag())
	line("  # convert a geometry with the routing web service")
	line(`  echo 'POINT (8.2505556 48.7627778)' |`)
	line(`    bin/trafficctl geometry --format-to VENDOR_CONFORM --key-file %s --url http://%s`, q.short(q.path(keyFile)), q.daemon.API)
}

// protoFile defines the layer's messages; the daemon publishes it.
const protoFile = "forecast.proto"

// missing returns a hint if a program is not installed.
func missing(program, aptPackage string) string {
	if _, err := exec.LookPath(program); err == nil {
		return ""
	}
	return fmt.Sprintf(" (%s: apt-get install %s)", program, aptPackage)
}

// urlFlag returns trafficctl's --url unless the daemon has the default address.
func (q *quickstart) urlFlag() string {
	if q.daemon.API == "127.0.0.1:8080" {
		return ""
	}
	return " --url http://" + q.daemon.API
}

// consumer returns a command that shows records.
func (q *quickstart) consumer() string {
	if _, err := exec.LookPath("kcat"); err == nil {
		return fmt.Sprintf(`kcat -b %s -t %s -C -e -q -o -1 -f '%%p/%%o %%k %%h\n'`, q.stores.Kafka.Brokers[0], topic)
	}
	return "go run ./cmd/quickstart tail --from start --brokers " + q.stores.Kafka.Brokers[0]
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
