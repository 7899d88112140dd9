package observability

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unwatched are the metrics that are in no dashboard and no alert, and why.
var unwatched = map[string]string{
	"trafficd_build_info":                          "names the version; it never changes while a process runs",
	"trafficd_journal_segments":                    "trafficd_journal_bytes shows how full the journal is",
	"trafficd_api_certificate_checks_total":        "trafficd_api_certificate_stale says when they fail",
	"trafficd_api_keys_checks_total":               "trafficd_api_keys_stale says when they fail",
	"trafficd_api_requests_without_response_total": "those of batches are trafficd_ingest_batches_without_response_total",
	"trafficd_pipeline_lag_rows":                   "an estimate from trafficd_pipeline_lag_frames, for the operators' page",
}

var (
	newMetric    = regexp.MustCompile(`(?:metrics\.(?:New\w+|GaugeFunc)|feedloop\.NewResults)\(\s*"(trafficd_\w+)",`)
	metricPrefix = regexp.MustCompile(`metrics\.GaugeFunc\("(trafficd_\w+_)"\+name`) // in a function named gauge
	ownGauge     = regexp.MustCompile(`\bgauge\(\s*"(\w+)"`)
	resource     = regexp.MustCompile(`admission\.(Requests|Memory)\("(trafficd_\w+)"`)
)

// metricNames returns the names of the metrics that the code of the programs creates.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	module := os.DirFS("../../../..")
	for _, root := range []string{"cmd", "pipeline", "sinks", "sources"} {
		require.NoError(t, fs.WalkDir(module, root, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			if path == "cmd/dev" {
				return fs.SkipDir
			}
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			text, err := fs.ReadFile(module, path)
			require.NoError(t, err)
			for _, m := range newMetric.FindAllSubmatch(text, -1) {
				names[string(m[1])] = true
			}
			for _, m := range resource.FindAllSubmatch(text, -1) {
				unit := map[string]string{"Requests": "requests", "Memory": "bytes"}[string(m[1])]
				names[string(m[2])+"_admission_"+unit], names[string(m[2])+"_admission_"+unit+"_limit"] = true, true
			}
			if prefix := metricPrefix.FindSubmatch(text); prefix != nil {
				for _, m := range ownGauge.FindAllSubmatch(text, -1) {
					names[string(prefix[1])+string(m[1])] = true
				}
			}
			return nil
		}))
	}
	return names
}

// TestMetricsAreWatched checks that each metric is in a dashboard or an alert, or that unwatched
// says why it is not. TestPromtool checks that metricNames is complete.
func TestMetricsAreWatched(t *testing.T) {
	var queries strings.Builder
	for _, a := range readAlerts(t) {
		queries.WriteString(a.Expr + "\n")
	}
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				queries.WriteString(target.Expr + "\n")
			}
		}
	}
	watched := map[string]bool{}
	for _, name := range regexp.MustCompile(`trafficd_\w+`).FindAllString(queries.String(), -1) {
		watched[name] = true
	}
	names := metricNames(t)
	for name := range names {
		found := watched[name] || watched[name+"_bucket"] || watched[name+"_sum"]
		require.NotEqual(t, found, unwatched[name] != "", "%s must be in a dashboard, an alert or, with a reason, in unwatched", name)
	}
	for name := range unwatched {
		require.Contains(t, names, name, "no program has the metric")
	}
	for name := range watched {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		require.True(t, names[name] || names[base], "no program has the metric %s", name)
	}
}
