package observability

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

// dashboard is a Grafana dashboard with the members that the dashboards use. Other members are
// errors, so that misspelled ones are noticed.
type dashboard struct {
	UID, Title, Description, Timezone, Refresh string
	Tags                                       []string
	Editable                                   bool
	GraphTooltip, SchemaVersion, Version       int
	Time                                       struct{ From, To string }
	Links                                      []struct {
		Type, Title                       string
		Tags                              []string
		AsDropdown, IncludeVars, KeepTime bool
	}
	Annotations struct {
		List []struct {
			Name                                     string
			Datasource                               datasource
			Enable                                   bool
			IconColor, Expr, TitleFormat, TextFormat string
		}
	}
	Templating struct{ List []variable }
	Panels     []dashboardPanel
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Label, Type, Definition, AllValue string
	Datasource                              *datasource
	Query                                   any // of a data source: its type
	Refresh, Sort                           int
	Multi, IncludeAll                       bool
	Current                                 struct{ Text, Value string }
}

type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool
	Panels                   []dashboardPanel
	Datasource               datasource
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Min, Max   *float64
			Color      struct{ Mode string }
			Thresholds struct {
				Mode  string
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
		Overrides []any
	}
	Options struct {
		Legend struct {
			DisplayMode, Placement string
			ShowLegend             bool
		}
		Tooltip              struct{ Mode, Sort string }
		ColorMode, GraphMode string
		ReduceOptions        struct {
			Calcs  []string
			Fields string
			Values bool
		}
	}
	Targets []struct {
		RefID, Expr, LegendFormat     string
		RawSQL, QueryType, EditorType string // of ClickHouse
		Format                        int
		Datasource                    datasource
	}
}

// units are the Grafana units that the panels may use.
var units = []string{"short", "percentunit", "s", "d", "bytes", "Bps", "ops", "reqps"}

// archiveDashboard reads ClickHouse, the others read Prometheus.
const archiveDashboard = "trafficd-archive.json"

// readDashboards returns all dashboards, by file name.
func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deployments, "observability", "grafana", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]dashboard{}
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		defer f.Close()
		decoder := json.NewDecoder(f)
		decoder.DisallowUnknownFields()
		var d dashboard
		require.NoError(t, decoder.Decode(&d), file)
		all[filepath.Base(file)] = d
	}
	return all
}

// TestDashboards checks that Grafana can show every panel and that names agree. TestFaults runs the
// queries.
func TestDashboards(t *testing.T) {
	for name, d := range readDashboards(t) {
		source := datasource{"prometheus", "${datasource}"}
		if name == archiveDashboard {
			source.Type = "grafana-clickhouse-datasource"
		}
		require.Equal(t, d.UID+".json", name)
		require.Contains(t, d.Tags, "trafficd", name)
		require.NotEmpty(t, d.Description, name)
		require.NotEmpty(t, d.Time.From, name)
		variables := map[string]bool{"datasource": false}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
			if v.Type == "query" {
				require.Equal(t, source, *v.Datasource)
				text := v.Query
				if query, ok := v.Query.(map[string]any); ok {
					text = query["query"]
				}
				require.Equal(t, v.Definition, text)
			}
		}
		require.True(t, variables["datasource"], name)
		ids := map[int]bool{}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			what := name + ": " + p.Title
			require.NotEmpty(t, p.Title, what)
			require.False(t, ids[p.ID], "%s: the id %d is not unique", what, p.ID)
			ids[p.ID] = true
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, what)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Empty(t, taken[[2]int{x, y}], "%s covers another panel", what)
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				require.Empty(t, p.Targets, what)
				continue
			}
			require.Contains(t, []string{"timeseries", "stat", "table"}, p.Type, what)
			require.NotEmpty(t, p.Description, what)
			require.Contains(t, units, p.FieldConfig.Defaults.Unit, what)
			require.Equal(t, source, p.Datasource, what)
			require.NotEmpty(t, p.Targets, what)
			refs := map[string]bool{}
			for _, target := range p.Targets {
				require.False(t, refs[target.RefID], what)
				refs[target.RefID] = true
				require.Equal(t, source, target.Datasource, what)
				require.NotEmpty(t, target.LegendFormat+target.RawSQL, what)
				for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(target.Expr+target.RawSQL, -1) {
					require.True(t, strings.HasPrefix(m[1], "__") || variables[m[1]], "%s uses the unknown variable %s", what, m[1])
				}
			}
		}
	}
}

// requireData requires that each query of each panel and variable of the boards has a result for
// the daemon. Before each attempt it calls use, which uses everything that the daemon serves.
func requireData(t *testing.T, p *prom, d *daemon, boards func(file string) bool, use func()) {
	t.Helper()
	type query struct{ where, expr string }
	var open []query
	for name, board := range readDashboards(t) {
		if !boards(name) {
			continue
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				expr := strings.NewReplacer("$__rate_interval", "1m", "$job", "trafficd", "$instance", d.name, "$client", d.name).Replace(target.Expr)
				open = append(open, query{name + ": " + panel.Title, expr})
			}
		}
		for _, v := range board.Templating.List {
			if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
				expr := strings.ReplaceAll(m[1], "$job", "trafficd")
				open = append(open, query{name + ": $" + v.Name, fmt.Sprintf(`%s and on (%[2]s) (%[1]s{%[2]s!=""})`, strings.Split(expr, "{")[0], m[2])})
			} else {
				require.Equal(t, "datasource", v.Type, v.Name)
			}
		}
	}
	require.NoError(t, launch.Eventually(t.Context(), limit, func() error {
		use()
		var errs []error
		open = slices.DeleteFunc(open, func(q query) bool {
			result, err := p.query(t.Context(), q.expr)
			number := func(s series) bool { return s.Value[1] != "NaN" && s.Value[1] != "+Inf" }
			if err == nil && !slices.ContainsFunc(result, number) {
				err = errors.New("no data")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", q.where, q.expr, err))
			}
			return err == nil
		})
		return errors.Join(errs...)
	}))
}
