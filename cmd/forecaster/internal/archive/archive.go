// Package archive derives the forecaster's tables from the archive in ClickHouse, and reads them
// and recent values.
//
// # Learning
//
// Each local day is learned once, after its end, by INSERT … SELECT (learn.sql):
//
//	measurements ──────────────▶ forecaster_values    usable readings, an array for each day
//	values of the day ───────┬─▶ forecaster_days      per slot of 15 minutes: weights and sums of values
//	profiles, weights ───────┴─▶ forecaster_moments   sums of products of two features, up to this day
//	forecaster_days ───────────▶ forecaster_profiles  of the next day: weekday → kind of day → all days → mean
//	forecaster_moments ────────▶ forecaster_weights   of the next day: least squares, shrunk to the pool, and bounds
//
// Then a row in forecaster_learned records that the tables of the next day are complete.
// Interrupted learning is repeated and replaces its own rows (ReplacingMergeTree, read with FINAL).
// The residuals of a day refer to the profile learned before that day, so learning never sees what
// it forecasts. On the first day of a detector, which has no profile yet, only its values are
// learned.
//
// # Rules for readings
//
//   - no_vehicles: those of an interval without vehicles, for which a detector repeats its previous
//     speed.
//   - impossible: values that are negative, 0 unless the setting zero allows it (as for flow), or
//     higher than the setting most.
//   - sick: those of a detector whose speed or count has been in one of the states Source.Refused.
//
// Lanes are measure types such as speed.lane2 and flow.lane2, which the pattern speed.* of the
// setting measure covers. These rules apply to each lane, with its own count. The lanes' averages
// are then averaged in proportion to their numbers of vehicles.
//
// Such readings are neither learned nor used. A reading belongs to the interval in which it ends.
// The readings of an interval are averaged: a reading of n vehicles has weight n/(n+2), and one
// without a count has the weight of 3 vehicles. If the unit of the counts ends in /h, they are
// multiplied by the length of their interval. A count over a million is taken as a million,
// because the weight of an infinite sum is not a number.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/cmd/forecaster/internal/model"
)

const (
	history  = 120 // days in a profile; older ones would have a weight of less than 0.95^120
	ridge    = 400 // weight of the pool in a detector's weights, as a number of readings with many vehicles
	reliable = 5   // minimum number of vehicles in a reading from which bounds are learned

	// KeepDays is the number of days for which the tables learned for a day are kept.
	KeepDays = 7

	clockSkew = 24 * time.Hour // tolerated for detectors and instances whose clocks are ahead

	readCells = 4_500_000 // detector intervals read at once: ClickHouse needs 100 bytes for each
)

// Source is the archive of one product instance and measure type, and the database of the learned
// tables.
type Source struct {
	Conn     driver.Conn
	Database string // of the archive
	Table    string
	Learned  string // database of the forecaster's tables
	Instance string
	Measure  string // measure type that is forecast, or a pattern (see covers)
	Count    string // measure type of the vehicle counts, or a pattern; empty: unknown
	Most     float64
	Zero     bool // whether 0 is a valid value
	Interval time.Duration
	Horizons []time.Duration
	Location *time.Location
	Holidays []string // such as 2026-12-25
	Refused  []string // states of health in which the values of a detector are not used
}

// ErrEmpty reports an archive without measurements.
var ErrEmpty = errors.New("the archive has no measurements of this product instance and measure type")

// Day returns the start of the local day that is n days after the day of t, as model.Day does.
func (s *Source) Day(t time.Time, n int) time.Time { return model.Day(t.In(s.Location), n) }

func (s *Source) start(y int, m time.Month, d int) time.Time {
	return model.StartOfDay(y, m, d, s.Location)
}

// Learn learns all days that ended at or before until, except those before the history of a
// profile, and calls done after each. It stops when done returns an error. It skips days that have
// been learned, including those that another instance learns meanwhile: that instance also removes
// the tables that learning them again needs.
func (s *Source) Learn(ctx context.Context, until time.Time, done func(day time.Time) error) (err error) {
	next, err := s.next(ctx, until)
	if err != nil {
		return err
	}
	days := 1
	if s.Day(next, 2).Before(until) {
		if days, err = s.readDays(ctx, next); err != nil {
			return err
		}
	}
	for read := next; !s.Day(next, 1).After(until); {
		if !next.Before(read) {
			if read = s.Day(next, days); read.After(until) {
				read = s.Day(until, 0)
			}
			if err := s.exec(ctx, s.query(next, next, read, 0), "values"); err != nil {
				return err
			}
		} else {
			if err := s.learnDay(ctx, next); err != nil {
				return fmt.Errorf("cannot learn %s: %w", next.Format(time.DateOnly), err)
			}
			if err := done(next); err != nil {
				return err
			}
		}
		if next, err = s.next(ctx, until); err != nil {
			return err
		}
	}
	return nil
}

// readDays returns the number of days whose measurements are read by one statement.
func (s *Source) readDays(ctx context.Context, from time.Time) (int, error) {
	q := s.query(from, from, from, 0)
	var n uint64
	err := s.Conn.QueryRow(ctx, "SELECT uniq(detector_code, measure_type_code) FROM "+q.Archive+" WHERE "+q.measured()+
		fmt.Sprintf(" AND timestamp_from >= fromUnixTimestamp(%d)", q.From)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("cannot count the detectors in %s: %w", q.Archive, err)
	}
	longest := int(25 * time.Hour / s.Interval) // intervals of the longest day
	return max(1, min(history, readCells/(longest*max(1, int(n))))), nil
}

// next returns the first day that has not been learned. It fails if that day is in the future.
func (s *Source) next(ctx context.Context, until time.Time) (day time.Time, err error) {
	q := s.query(until, until, until, 0)
	day, _, ok, err := s.latest(ctx, q, "true")
	if err != nil {
		return day, err
	}
	if ok {
		next := s.start(day.Date())
		if next.After(until.Add(clockSkew)) {
			err = fmt.Errorf("the clock was ahead: days up to %s were learned without their measurements: "+
				"to learn the archive again, stop the forecaster and truncate the tables %s.forecaster_…", next.Format(time.DateOnly), q.Tables)
		}
		return next, err
	}
	var n uint64
	err = s.Conn.QueryRow(ctx, "SELECT min(timestamp_from), count() FROM "+q.Archive+" WHERE "+q.measured()+
		fmt.Sprintf(" AND timestamp_from >= fromUnixTimestamp(%d)", s.Day(until, -history).Unix())).Scan(&day, &n)
	if err == nil && n == 0 {
		err = ErrEmpty
	}
	if err != nil {
		return day, fmt.Errorf("cannot find the first measurement in %s: %w", q.Archive, err)
	}
	return s.Day(day, 0), nil
}

// latest returns the latest day in forecaster_learned that matches a condition, and the end of the
// measurements from which it was learned. ok is false if there is none. It fails if days were
// learned with a different interval, because the learned tables count in intervals.
func (s *Source) latest(ctx context.Context, q *query, condition string) (day, until time.Time, ok bool, err error) {
	var seconds uint32
	var n uint64
	err = s.Conn.QueryRow(ctx, fmt.Sprintf(
		"SELECT max(day), argMax(learned_until, day), argMax(interval_seconds, day), count() "+
			"FROM %s.forecaster_learned WHERE %s AND %s",
		q.Tables, q.Key(), condition)).Scan(&day, &until, &seconds, &n)
	if err != nil {
		return day, until, false, fmt.Errorf("cannot read %s.forecaster_learned: %w", q.Tables, err)
	}
	if learned := time.Duration(seconds) * time.Second; n > 0 && learned != s.Interval {
		return day, until, false, fmt.Errorf("model.interval is %s, but the tables %s.forecaster_… were learned with %s: "+
			"set it back or, to learn the archive again, stop the forecaster and truncate these tables", s.Interval, q.Tables, learned)
	}
	return day, until, n > 0, nil
}

// learnDay learns day from forecaster_values. Days are learned in order.
func (s *Source) learnDay(ctx context.Context, day time.Time) (err error) {
	lead := int(s.Horizons[len(s.Horizons)-1]/s.Interval) + model.Hour
	tomorrow := s.Day(day, 1)
	q := s.query(day, day.Add(-time.Duration(lead)*s.Interval), tomorrow, lead)
	for _, name := range []string{"days", "moments"} {
		if err := s.exec(ctx, q, name); err != nil {
			return err
		}
	}
	t := s.query(tomorrow, tomorrow, tomorrow, 0)
	for _, name := range []string{"profiles", "weights"} {
		if err := s.exec(ctx, t, name); err != nil {
			return err
		}
	}
	err = s.Conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s.forecaster_learned "+
		"(product_instance, measure_type_code, day, learned_until, interval_seconds) VALUES (%s, %s, %s, fromUnixTimestamp(%d), %d)",
		q.Tables, quote(s.Instance), quote(s.Measure), quote(t.Day), tomorrow.Unix(), int64(s.Interval/time.Second)))
	if err != nil {
		return fmt.Errorf("cannot record the day: %w", err)
	}
	old := quote(s.Day(day, -KeepDays).Format(time.DateOnly))
	for _, table := range []string{"values", "moments", "profiles", "weights"} {
		drop := fmt.Sprintf("ALTER TABLE %s.forecaster_%s DROP PARTITION (%s, %s, toDate(%s))",
			q.Tables, table, quote(s.Instance), quote(s.Measure), old)
		if err := s.Conn.Exec(ctx, drop); err != nil {
			return fmt.Errorf("cannot remove old rows: %w", err)
		}
	}
	return nil
}

// final is the setting that makes FINAL process each partition separately. The keys of learned
// tables are unique only within a partition.
const final = "do_not_merge_across_partitions_select_final"

func finalContext(ctx context.Context) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{final: 1}))
}

// settings makes each INSERT a single block. One thread uses the least CPU time for many small
// statements, and sums in the same order in every instance.
var settings = clickhouse.Settings{
	final: 1, "max_threads": 1,
	"max_insert_block_size": 1 << 24, "min_insert_block_size_rows": 1 << 24, "min_insert_block_size_bytes": 1 << 30,
	"max_ast_elements": 1_000_000, "max_expanded_ast_elements": 5_000_000,
}

func (s *Source) exec(ctx context.Context, q *query, name string) error {
	sql, err := q.sql(name)
	if err == nil {
		err = s.Conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), sql)
	}
	if err != nil {
		return fmt.Errorf("cannot compute %s: %w", name, err)
	}
	return nil
}

// factors are the speeds in km/h of the units of measure types. Values in another unit, or without
// one, are taken for km/h.
var factors = map[string]float64{"km/h": 1, "mph": 1.609344, "mi/h": 1.609344, "m/s": 3.6}

// Unit returns the unit of the measure type that is forecast, or "" if the daemon's settings do not
// name it.
func (s *Source) Unit(ctx context.Context) (unit string, err error) {
	q := s.query(time.Time{}, time.Time{}, time.Time{}, 0)
	err = s.Conn.QueryRow(ctx, "SELECT max(unit) FROM "+q.MeasureTypes()+" WHERE "+q.Covers(s.Measure)).Scan(&unit)
	if err != nil {
		return "", fmt.Errorf("cannot read the unit of %s in %s: %w", s.Measure, q.MeasureTypes(), err)
	}
	return unit, nil
}

// Uncovered returns the measure types in the archive since a time that are below Measure or Count,
// such as speed.lane2, but are not used, because Measure or Count is not a pattern.
func (s *Source) Uncovered(ctx context.Context, since time.Time) (codes []string, err error) {
	q := s.query(since, since, since, 0)
	var below []string
	for _, code := range []string{s.Measure, s.Count} {
		if code != "" && !strings.HasSuffix(code, everything) {
			below = append(below, fmt.Sprintf("startsWith(measure_type_code, %s)", quote(code+".")))
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	err = s.Conn.QueryRow(ctx, fmt.Sprintf("SELECT arraySort(groupUniqArray(toString(measure_type_code))) FROM %s "+
		"WHERE product_instance = %s AND (%s) AND NOT %s AND timestamp_from >= fromUnixTimestamp(%d)",
		q.Archive, quote(s.Instance), strings.Join(below, " OR "), q.Used(), q.From)).Scan(&codes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the measure types in %s: %w", q.Archive, err)
	}
	return codes, nil
}

// Load reads the latest tables: those learned for the day of at or, if there are none, for the last
// day before it. If nothing was learned, Pool is nil.
func (s *Source) Load(ctx context.Context, at time.Time) (l *model.Learned, err error) {
	day := s.Day(at, 0)
	q := s.query(day, day, day, 0)
	latest, until, ok, err := s.latest(ctx, q, "day <= "+quote(q.Day))
	if err != nil {
		return nil, err
	}
	unit, err := s.Unit(ctx)
	if err != nil {
		return nil, err
	}
	l = &model.Learned{Day: day, Interval: s.Interval, Detectors: make(map[string]*model.Detector), Factor: factors[unit]}
	if !ok {
		return l, nil
	}
	l.Day, l.Until = s.start(latest.Date()), until
	q.Day = l.Day.Format(time.DateOnly)
	var weekdays []struct {
		Number uint8 `ch:"number"`
	}
	err = s.Conn.Select(ctx, &weekdays, fmt.Sprintf("SELECT DISTINCT toDayOfWeek(day) AS number FROM %[1]s.forecaster_profiles "+
		"WHERE %[2]s AND detector_code != '' AND day IN "+
		"(SELECT max(day) FROM %[1]s.forecaster_learned WHERE %[2]s GROUP BY toDayOfWeek(day)) ORDER BY number", q.Tables, q.Key()))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s.forecaster_profiles: %w", q.Tables, err)
	}
	for _, d := range weekdays {
		l.Weekdays = append(l.Weekdays, int(d.Number))
	}
	var profiles []struct {
		Code string `ch:"detector_code"`
		model.Detector
	}
	err = s.Conn.Select(finalContext(ctx), &profiles, "SELECT detector_code, profile, mean, yesterday, recent FROM "+q.Tables+
		".forecaster_profiles FINAL WHERE "+q.Key()+" AND day = "+quote(q.Day))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s.forecaster_profiles: %w", q.Tables, err)
	}
	for i := range profiles {
		if p := &profiles[i]; p.Code == "" {
			l.Pool = &p.Detector
		} else {
			p.SetFreeFlow()
			l.Detectors[p.Code] = &p.Detector
		}
	}
	var weights []struct {
		Code    string    `ch:"detector_code"`
		Horizon uint16    `ch:"horizon"`
		Beta    []float64 `ch:"weights"`
		Low     float64   `ch:"low"`
		High    float64   `ch:"high"`
		Spread  []float64 `ch:"spread"`
	}
	err = s.Conn.Select(finalContext(ctx), &weights, "SELECT detector_code, horizon, weights, low, high, spread FROM "+q.Tables+
		".forecaster_weights FINAL WHERE "+q.Key()+" AND day = "+quote(q.Day)+" ORDER BY detector_code, horizon")
	if err != nil {
		return nil, fmt.Errorf("cannot read %s.forecaster_weights: %w", q.Tables, err)
	}
	for _, w := range weights {
		d := l.Detectors[w.Code]
		if w.Code == "" {
			d = l.Pool
		}
		if d != nil {
			learned := model.Weights{Horizon: int(w.Horizon), Low: w.Low, High: w.High}
			copy(learned.Beta[:], w.Beta)
			copy(learned.Spread[:], w.Spread)
			d.Weights = append(d.Weights, learned)
		}
	}
	if l.Pool != nil {
		for _, d := range l.Detectors {
			if d.Weights == nil { // no forecast of the detector could be compared with a value yet
				d.Weights = l.Pool.Weights
			}
		}
	}
	return l, nil
}

// Typical returns the profile of each detector at an hour of a weekday, where 1 is Monday. It is
// that of the latest such day that was learned, and empty if there is none.
func (s *Source) Typical(ctx context.Context, weekday, hour int) (map[string]float64, error) {
	q := s.query(time.Time{}, time.Time{}, time.Time{}, 0)
	var rows []struct {
		Code  string  `ch:"detector_code"`
		Value float64 `ch:"value"`
	}
	err := s.Conn.Select(finalContext(ctx), &rows, fmt.Sprintf("SELECT detector_code, profile[%d] AS value "+
		"FROM %[2]s.forecaster_profiles FINAL WHERE %[3]s AND detector_code != '' AND "+
		"day = (SELECT max(day) FROM %[2]s.forecaster_learned WHERE %[3]s AND toDayOfWeek(day) = %[4]d)",
		model.SlotsPerDay+hour*model.SlotsPerDay/24+1, q.Tables, q.Key(), weekday))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s.forecaster_profiles: %w", q.Tables, err)
	}
	values := make(map[string]float64, len(rows))
	for _, r := range rows {
		values[r.Code] = r.Value
	}
	return values, nil
}

// Values holds the readings of a detector in intervals of equal length.
type Values struct {
	Code     string    `ch:"detector_code"`
	Values   []float64 `ch:"vs"`
	Weights  []float64 `ch:"ws"`      // 0: no usable reading
	Reliable []float64 `ch:"bs"`      // 1: has enough vehicles for the evaluation
	Seen     time.Time `ch:"latest"`  // end of the latest measurement, usable or not
	Refused  bool      `ch:"refused"` // the detector is in one of the states Source.Refused at the end
	Street   string    `ch:"street"`
}

// Recent returns the hour from the interval at on. It may be shorter. Refused is not set.
func (v *Values) Recent(at int) (r model.Recent) {
	r.Seen, r.Street = v.Seen, v.Street
	copy(r.Values[:], v.Values[min(at, len(v.Values)):])
	copy(r.Weights[:], v.Weights[min(at, len(v.Weights)):])
	copy(r.Reliable[:], v.Reliable[min(at, len(v.Reliable)):])
	return r
}

// Values reads the intervals in [from, to), sorted by detector code. Measurements that end after to
// are not used.
func (s *Source) Values(ctx context.Context, from, to time.Time) ([]Values, error) {
	return s.values(ctx, s.query(s.Day(from, 0), from, to, 0))
}

// newest returns a query for intervals that skips parts by an index: those received before them.
func (s *Source) newest(from, to time.Time) *query {
	q := s.query(s.Day(to, 0), from, to, 0)
	q.Received = q.From - int64(clockSkew/time.Second)
	return q
}

// Repeat reads the intervals before each origin in (from, to], which it limits to a number of cells
// for so many detectors. It returns the last origin; see Values.Recent.
func (s *Source) Repeat(ctx context.Context, from, to time.Time, detectors int) (all []Values, last time.Time, err error) {
	last = from.Add(time.Duration(max(model.Hour, readCells/max(1, detectors))) * s.Interval)
	if last.After(to) {
		last = to
	}
	all, err = s.values(ctx, s.newest(from.Add(-(model.Hour-1)*s.Interval), last))
	return all, last, err
}

func (s *Source) values(ctx context.Context, q *query) (all []Values, err error) {
	sql, err := q.sql("recent")
	if err != nil {
		return nil, err
	}
	if err := s.Conn.Select(finalContext(ctx), &all, sql); err != nil {
		return nil, fmt.Errorf("cannot read values from %s: %w", q.Archive, err)
	}
	return all, nil
}

// Recent returns the codes of the detectors, sorted, and their values in the hour before an origin.
// Those that have stopped alone have a substitute, as if their values were refused, but not those
// of a feed that has stopped.
func (s *Source) Recent(ctx context.Context, origin time.Time) (codes []string, recent []model.Recent, err error) {
	q := s.newest(origin.Add(-model.Hour*s.Interval), origin)
	all, err := s.values(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if len(s.Refused) > 0 {
		var silent, stopped []Values
		sql, err := q.sql("silent")
		if err == nil {
			err = s.Conn.Select(finalContext(ctx), &silent, sql)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read silent detectors from %s: %w", q.Health(), err)
		}
		byCode := func(a, b Values) int { return cmp.Compare(a.Code, b.Code) }
		for _, v := range silent {
			if _, sends := slices.BinarySearchFunc(all, v, byCode); !sends {
				stopped = append(stopped, v)
			}
		}
		all = append(all, stopped...)
		slices.SortFunc(all, byCode)
	}
	codes, recent = make([]string, len(all)), make([]model.Recent, len(all))
	for i, v := range all {
		codes[i], recent[i] = v.Code, v.Recent(0)
		recent[i].Refused = v.Refused
	}
	return codes, recent, nil
}

// Store stores the values that the forecasts from an origin use in place of those of sick
// detectors, if an interval ends at the origin.
func (s *Source) Store(ctx context.Context, origin time.Time, imputed iter.Seq2[string, model.Forecast]) error {
	if !origin.Truncate(s.Interval).Equal(origin) {
		return nil
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"async_insert": 0}))
	b, err := s.Conn.PrepareBatch(ctx, "INSERT INTO `"+s.Learned+"`.forecaster_imputed "+
		"(product_instance, measure_type_code, timestamp_from, timestamp_to, detector_code, value, method)")
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	measure := strings.TrimSuffix(s.Measure, everything)
	for code, f := range imputed {
		if err := b.Append(s.Instance, measure, origin.Add(-s.Interval), origin, code, f.Value, string(f.Basis)); err != nil {
			return err
		}
	}
	if b.Rows() == 0 {
		return nil
	}
	return b.Send()
}
