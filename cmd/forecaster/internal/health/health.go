// Package health finds detectors whose measurements mislead, and records them in the archive.
//
// Each test is a file in tests: a query that returns the detectors that fail it, since when, and
// the rule with its numbers. Tests compare the hours of the archive (measurements_hours) with what
// is usual for the detector, which usual.sql learns each day from the 28 days before. So they work
// for every measure type and interval without settings: windows are in intervals of the detector,
// or as long as its values need to be conclusive.
//
// A state that is found again within three hours continues: first_at remains, last_at and rule
// change. States that have ended remain in the table.
package health

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/cmd/forecaster/internal/model"
	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
)

const (
	history  = 28 // days that determine what is usual
	keepDays = 7  // days for which that is kept
)

// Test is a test of a detector's health. Its name is the state of the detectors that fail it.
type Test = contract.HealthState

// Refused returns the states in which the values of a detector are worthless: forecasts do not use
// them.
func Refused() (states []string) {
	for _, t := range Tests {
		if t.Refused() {
			states = append(states, t.Name)
		}
	}
	return states
}

// Tests lists the tests in the order in which they run. How well they find planted faults is in
// schemas/clickhouse/README.md.
var Tests = contract.HealthStates

// Source is the archive of a product instance.
type Source struct {
	Conn     driver.Conn
	Database string
	Table    string
	Cluster  string // name of the cluster on the servers; empty: one server
	Instance string
	Location *time.Location
	Holidays []string // such as 2026-12-25
	Enabled  []string // states of the tests that are off by default, but run
}

//go:embed *.sql tests/*.sql
var files embed.FS

var statements = template.Must(template.New("").Funcs(template.FuncMap{"q": quote}).ParseFS(files, "*.sql", "tests/*.sql"))

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// query holds the parameters of the statements.
type query struct {
	*Source
	at, from time.Time
	State    string
	Test     string
	Back     int // hours before LastHour
	Compared int
}

func (q *query) execute(name string) (string, error) {
	var b strings.Builder
	err := statements.ExecuteTemplate(&b, name, q)
	return strings.TrimSpace(b.String()), err
}

func (q *query) table(name string) string {
	return "`" + q.Database + "`.`" + q.Table + "_" + name + "`"
}

func unix(t time.Time) string { return fmt.Sprintf("toDateTime(%d, 'UTC')", t.Unix()) }

// Hours, ByTime, Latest, Usual, Health and Sick return the quoted names of tables.
func (q *query) Hours() string  { return q.table("hours") }
func (q *query) ByTime() string { return q.table("by_time") }
func (q *query) Latest() string { return q.table("last") }
func (q *query) Usual() string  { return q.table("health_usual") }
func (q *query) Health() string { return q.table("health") }
func (q *query) Sick() string   { return q.table("sick_hours") }

func (q *query) layout() schema.Layout {
	return schema.Layout{Database: q.Database, Table: q.Table, Cluster: q.Cluster}
}

// Good returns an SQL expression that reports whether the detector was not found sick in an hour.
func (q *query) Good() string {
	return q.layout().Good("product_instance, measure_type_code, detector_code", "hour")
}

// At returns the time of the check, LastHour the end of the last complete hour.
func (q *query) At() string       { return unix(q.at) }
func (q *query) LastHour() string { return unix(q.at.Truncate(time.Hour)) }

// From and To return the range of the hours from which the usual is learned.
func (q *query) From() string { return unix(q.from) }
func (q *query) To() string   { return unix(q.at) }
func (q *query) Zone() string { return q.Location.String() }
func (q *query) Day() string  { return q.at.In(q.Location).Format(time.DateOnly) }

// Place returns an SQL expression for the index of an hour in the usual levels: 24 times the kind
// of day, 0 for workdays, 1 for Saturdays, 2 for Sundays and holidays, plus the hour of the day.
func (q *query) Place(hour string) string {
	var holidays []string
	for _, day := range q.Holidays {
		if day >= q.from.Format(time.DateOnly) && day <= q.Day() {
			holidays = append(holidays, quote(day))
		}
	}
	local := fmt.Sprintf("toTimeZone(%s, %s)", hour, quote(q.Zone()))
	return fmt.Sprintf("toUInt8(24 * if(has(CAST([%s], 'Array(String)'), toString(toDate(%s))), 2, "+
		"greatest(toDayOfWeek(%s), 5) - 5) + toHour(%s))", strings.Join(holidays, ", "), local, local, local)
}

// Streets returns a query for the streets of the detectors.
func (q *query) Streets() string {
	return fmt.Sprintf("(SELECT detector_code, street FROM %s WHERE product_instance = %s)", q.table("detectors"), quote(q.Instance))
}

// Many returns an SQL expression for the number of detectors whose simultaneous failure is one of
// the network.
func (q *query) Many() string {
	return fmt.Sprintf("(SELECT greatest(5, 0.2 * uniqExact(detector_code)) FROM %s WHERE product_instance = %s AND day = %s)",
		q.Usual(), quote(q.Instance), quote(q.Day()))
}

// Open returns a query for the detectors that have been in a state recently.
func (q *query) Open(state string) string {
	return fmt.Sprintf("(SELECT detector_code, measure_type_code, max(first_at) AS first_at, true AS found FROM %s FINAL "+
		"WHERE product_instance = %s AND state = %s AND last_at >= %s - INTERVAL 3 HOUR AND last_at <= %s "+
		"GROUP BY detector_code, measure_type_code)",
		q.Health(), quote(q.Instance), quote(state), q.At(), q.At())
}

// Past returns a query for the complete hours of the last n, and Recent the same with what is
// usual. Quiet, Runs and Zeros, and Level, which is of n hours, are described in common.sql.
func (q query) Past(n int) (string, error) {
	q.Back = n
	return q.execute("hours")
}

func (q query) Recent(n int) (string, error) {
	q.Back = n
	return q.execute("recent")
}

func (q query) Quiet() (string, error) { return q.execute("quiet") }
func (q query) Runs() (string, error)  { return q.execute("runs") }
func (q query) Zeros() (string, error) { return q.execute("zeros") }

func (q query) Level(n int) (string, error) {
	q.Compared = n
	return q.execute("compared")
}

// settings make the statements independent of the user's profile. One thread leaves the others to
// inserts and queries.
var settings = clickhouse.Settings{
	"max_threads": 1, "join_use_nulls": 0, "do_not_merge_across_partitions_select_final": 1, "max_ast_elements": 1_000_000,
	"max_expanded_ast_elements": 5_000_000, "async_insert": 0, "prefer_column_name_to_alias": 1,
}

func (s *Source) exec(ctx context.Context, sql string) error {
	return s.Conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), sql)
}

// Learn computes what is usual on the local day of at, unless it is known.
func (s *Source) Learn(ctx context.Context, at time.Time) error {
	day := model.Day(at.In(s.Location), 0)
	q := &query{Source: s, at: day, from: model.Day(day, -history)}
	var known uint64
	err := s.Conn.QueryRow(ctx, fmt.Sprintf("SELECT count() FROM %s WHERE product_instance = %s AND day = %s",
		q.Usual(), quote(s.Instance), quote(q.Day()))).Scan(&known)
	if err != nil || known > 0 {
		return err
	}
	sql, err := q.execute("usual.sql")
	if err == nil {
		err = s.exec(ctx, sql)
	}
	if err != nil {
		return fmt.Errorf("cannot compute what is usual for the detectors: %w", err)
	}
	var old []struct { // more than one after days without the forecaster
		Day time.Time `ch:"day"`
	}
	err = s.Conn.Select(ctx, &old, fmt.Sprintf("SELECT DISTINCT day FROM %s WHERE product_instance = %s AND day <= %s",
		q.Usual(), quote(s.Instance), quote(model.Day(day, -keepDays).Format(time.DateOnly))))
	for _, o := range old {
		err = errors.Join(err, s.exec(ctx, fmt.Sprintf("ALTER TABLE %s DROP PARTITION (%s, toDate(%s))",
			q.Usual(), quote(s.Instance), quote(o.Day.Format(time.DateOnly)))))
	}
	return err
}

// ErrIncomplete reports that the hours of the archive lack measurements that were received before
// the check: tests would miss them.
var ErrIncomplete = errors.New("the hours of the archive lack measurements that it has; " +
	"check that a daemon runs with clickhouse.derive_interval above 0")

// CheckAll runs all tests on the measurements before at, unless they have been run, and returns the
// number of detectors in each state.
func (s *Source) CheckAll(ctx context.Context, at time.Time) (sick map[string]uint64, err error) {
	q := &query{Source: s, at: at}
	var pending uint64
	err = s.Conn.QueryRow(ctx, fmt.Sprintf("SELECT count() FROM `%s`.`%s` FINAL WHERE derived = 0 AND first_received_at < %s",
		s.Database, q.layout().Derived("blocks"), q.At())).Scan(&pending)
	if err == nil && pending > 0 {
		return nil, ErrIncomplete
	}
	var checks []struct {
		Test string    `ch:"test"`
		Last time.Time `ch:"last"`
	}
	var states []struct {
		State string `ch:"state"`
		Count uint64 `ch:"sick"`
	}
	if err == nil {
		err = s.Conn.Select(ctx, &checks, fmt.Sprintf("SELECT measure_type_code AS test, max(last_at) AS last FROM %s "+
			"WHERE product_instance = %s AND state = 'checked' GROUP BY measure_type_code", q.Health(), quote(s.Instance)))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the last checks in %s: %w", q.Health(), err)
	}
	last := map[string]time.Time{}
	for _, c := range checks {
		last[c.Test] = c.Last
	}
	if err := s.Learn(ctx, at); err != nil {
		return nil, err
	}
	for _, test := range Tests {
		due := at
		if test.Hourly() {
			due = at.Truncate(time.Hour)
		}
		switch {
		case !last[test.Name].Before(due):
		case s.Runs(test):
			err = s.Check(ctx, test, at)
		case !last[test.Name].IsZero(): // it ran until a change of the settings: what it found ends
			err = s.checked(ctx, test, at)
		}
		if err != nil {
			return nil, err
		}
	}
	err = s.Conn.Select(ctx, &states, fmt.Sprintf("SELECT state, uniqExact(detector_code) AS sick FROM %s "+
		"WHERE product_instance = %s AND current GROUP BY state", q.table("detector_health"), quote(s.Instance)))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", q.table("detector_health"), err)
	}
	sick = map[string]uint64{}
	for _, c := range states {
		sick[c.State] = c.Count
	}
	return sick, nil
}

// Runs reports whether CheckAll runs a test.
func (s *Source) Runs(test Test) bool { return !test.Off() || slices.Contains(s.Enabled, test.Name) }

// checked records that a test has been run.
func (s *Source) checked(ctx context.Context, test Test, at time.Time) error {
	q := &query{Source: s}
	return s.exec(ctx, fmt.Sprintf("INSERT INTO %s (product_instance, measure_type_code, state, last_at) VALUES (%s, %s, 'checked', %d)",
		q.Health(), quote(s.Instance), quote(test.Name), at.Unix()))
}

// Check runs a test on the measurements before at and records the detectors that fail it.
func (s *Source) Check(ctx context.Context, test Test, at time.Time) error {
	q := &query{Source: s, at: at, from: at.AddDate(0, 0, -2), State: test.Name}
	sql, err := q.execute(test.Name + ".sql")
	if err == nil {
		q.Test = sql
		sql, err = q.execute("record.sql")
	}
	if err == nil {
		err = s.exec(ctx, sql)
	}
	if err == nil {
		err = s.checked(ctx, test, at)
	}
	if err != nil {
		return fmt.Errorf("cannot run the test %s: %w", test.Name, err)
	}
	return nil
}
