package archive

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
	"time"

	"trafficd/cmd/forecaster/internal/model"
)

//go:embed learn.sql
var text string

var statements = template.Must(template.New("").Funcs(template.FuncMap{
	"q":    quote,
	"inc":  func(i int) int { return i + 1 },
	"join": strings.Join,
	"add":  func(a, b int) int { return a + b },
}).Parse(text))

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

func array(numbers []int) string { return strings.ReplaceAll(fmt.Sprint(numbers), " ", ",") }

// query holds the parameters of the statements. A place is the index of an interval, counted from
// From. Times are in Unix seconds.
type query struct {
	*Source
	Archive, Tables string // quoted names
	Step            int64  // interval in seconds
	From, To        int64
	Received        int64  // measurements received earlier are not read; 0: all are read
	Places          int    // number of intervals from From to To
	Before          int    // number of intervals in the day before
	Lead            int    // number of places before the day
	Length          int    // number of places in the day
	Slots           string // array: slot of each place
	Expanded        string // array: profile at each place
	Horizons        string // array, in intervals
	Holidays        string // array
	Days            string // array: day, place of its first interval from 1, intervals
	Day, DayBefore  string
	Targets         []target
}

// target describes a day for which profiles are computed, as Source.target returns it.
type target struct{ Class, Kind int }

func (q *query) Counted() bool      { return q.Measure != q.Count && q.Count != "" }
func (q *query) Clip() float64      { return model.Clip }
func (q *query) Knee() float64      { return model.Knee }
func (q *query) DepthUnit() float64 { return model.DepthUnit }
func (q *query) MaxDepth() float64  { return model.MaxDepth }
func (q *query) K() int             { return model.K }
func (q *query) Blocks() int        { return model.Blocks }
func (q *query) BlockSlots() int    { return model.SlotsPerDay / model.Blocks }
func (q *query) SlotsPerDay() int   { return model.SlotsPerDay }
func (q *query) History() int       { return history }
func (q *query) Ridge() float64     { return ridge }
func (q *query) Least() float64     { return reliable }
func (q *query) Columns() (c []string) {
	for i := range model.K {
		c = append(c, fmt.Sprint("x", i+1))
	}
	return c
}

// Limited and Deep list the features that are used again, limited or multiplied by the depth.
func (q *query) Limited() []int { return []int{1, 2, 3} }
func (q *query) Deep() []int    { return []int{1, 2, 3, 4} }

// Products lists the pairs of arrays that are multiplied to compute the moments: each feature with
// itself, with the features after it, and with y.
func (q *query) Products() (list []string) {
	for i := 1; i <= model.K; i++ {
		for j := i; j <= model.K; j++ {
			list = append(list, fmt.Sprintf("z%d, x%d", i, j))
		}
		list = append(list, fmt.Sprintf("z%d, y", i))
	}
	return list
}

// Arrays lists the columns of forecaster_values: values, their weights in windows and as targets,
// reliability.
func (q *query) Arrays() []string { return []string{"vs", "ws", "ts", "bs"} }

// expanded returns an SQL expression for the profile at each place: each slot is repeated for the
// intervals in it. Slots recur when clocks are set back; a new part then begins.
func expanded(slots []int) string {
	var parts []string
	for len(slots) > 0 {
		counts := make([]int, 3*model.SlotsPerDay)
		for i := range counts {
			for len(slots) > 0 && slots[0] == i {
				slots, counts[i] = slots[1:], counts[i]+1
			}
		}
		parts = append(parts, fmt.Sprintf("arrayFlatten(arrayMap((x, n) -> arrayWithConstant(n, x), arrayResize(profile, %d, 0.), %s))",
			len(counts), array(counts)))
	}
	return "arrayConcat(" + strings.Join(parts, ", ") + ")"
}

// span is a window of residuals: the difference between two places in an array of running sums.
type span struct {
	Column, Sums, Weights string
	From, To              int
	Shrink                float64
}

func (q *query) Windows() (list []span) {
	for i, w := range model.Windows {
		list = append(list, span{fmt.Sprint("x", i+1), "cr", "cw", w[0], w[1], model.Shrink})
	}
	for i, w := range model.NetWindows {
		list = append(list, span{fmt.Sprint("x", i+12), "nr", "nw", w[0], w[1], model.NetShrink})
	}
	return list
}

// everything is the end of a pattern: speed.* covers speed and all measure types below it, such as
// speed.lane2.
const everything = ".*"

// Lanes reports whether a detector may have several measure types that are forecast, or counts.
func (q *query) Lanes() bool {
	return strings.HasSuffix(q.Measure, everything) || strings.HasSuffix(q.Count, everything)
}

// Lane returns an SQL expression for what follows the measure type or pattern in a code that it
// covers.
func (q *query) Lane(pattern string) string {
	return fmt.Sprintf("substring(measure_type_code, %d)", len(strings.TrimSuffix(pattern, everything))+1)
}

// Covers returns the condition that selects the measure types that a pattern covers.
func (q *query) Covers(pattern string) string {
	code, all := strings.CutSuffix(pattern, everything)
	if !all {
		return "measure_type_code = " + quote(code)
	}
	return fmt.Sprintf("(measure_type_code = %s OR startsWith(measure_type_code, %s))", quote(code), quote(code+"."))
}

// MeasureTypes returns the quoted name of the view with the units.
func (q *query) MeasureTypes() string { return "`" + q.Database + "`.`" + q.Table + "_measure_types`" }

// Health and Detectors return the quoted names of the views with the states of health and the
// streets.
func (q *query) Health() string    { return "`" + q.Database + "`.`" + q.Table + "_detector_health`" }
func (q *query) Detectors() string { return "`" + q.Database + "`.`" + q.Table + "_detectors`" }

// RefusedStates returns an SQL list of Refused.
func (q *query) RefusedStates() string { return "'" + strings.Join(q.Refused, "', '") + "'" }

// Future returns a time after all measurements, for states that have not ended.
func (q *query) Future() uint32 { return math.MaxUint32 }

// Used returns the condition that selects the measure types that are read.
func (q *query) Used() string {
	if !q.Counted() {
		return q.Covers(q.Measure)
	}
	return "(" + q.Covers(q.Measure) + " OR " + q.Covers(q.Count) + ")"
}

// measured returns the condition that selects the measurements to forecast in the archive.
func (q *query) measured() string {
	return fmt.Sprintf("product_instance = %s AND %s", quote(q.Instance), q.Covers(q.Measure))
}

// Key returns the condition that selects the rows of the product instance and measure type in the
// learned tables.
func (q *query) Key() string {
	return fmt.Sprintf("product_instance = %s AND measure_type_code = %s", quote(q.Instance), quote(q.Measure))
}

func (q *query) sql(name string) (string, error) {
	var b strings.Builder
	err := statements.ExecuteTemplate(&b, name, q)
	return b.String(), err
}

// query returns the parameters for the intervals in [from, to). The first lead intervals precede
// the day.
func (s *Source) query(day, from, to time.Time, lead int) *query {
	q := &query{
		Source: s, Archive: "`" + s.Database + "`.`" + s.Table + "`", Tables: "`" + s.Learned + "`",
		Step: int64(s.Interval / time.Second), From: from.Unix(), To: to.Unix(), Lead: lead,
		Day: day.Format(time.DateOnly), DayBefore: s.Day(day, -1).Format(time.DateOnly),
	}
	q.Places = int((q.To - q.From) / q.Step)
	q.Length = q.Places - lead
	q.Before = int(day.Sub(s.Day(day, -1)) / s.Interval)
	var days []string
	for next := day; lead == 0 && next.Before(to); next = s.Day(next, 1) {
		days = append(days, fmt.Sprintf("(toDate(%s), %d, %d)", quote(next.Format(time.DateOnly)), next.Sub(from)/s.Interval+1,
			s.Day(next, 1).Sub(next)/s.Interval))
	}
	q.Days = "[" + strings.Join(days, ", ") + "]"
	l := model.Learned{Day: day}
	var slots, horizons []int
	for t := from; lead > 0 && t.Before(to); t = t.Add(s.Interval) {
		slots = append(slots, l.Slot(t))
	}
	for _, h := range s.Horizons {
		horizons = append(horizons, int(h/s.Interval))
	}
	q.Slots, q.Horizons, q.Expanded = array(slots), array(horizons), expanded(slots)
	var holidays []string
	for _, h := range s.Holidays {
		if h >= s.Day(day, -history).Format(time.DateOnly) && h <= q.Day {
			holidays = append(holidays, quote(h))
		}
	}
	q.Holidays = "CAST([" + strings.Join(holidays, ",") + "], 'Array(String)')"
	for i := -1; i <= 1; i++ {
		q.Targets = append(q.Targets, s.target(s.Day(day, i)))
	}
	return q
}

// target returns the weekday, 1 (Monday) to 7 (Sunday, holiday), and the kind of day: 0, 1 or 2.
func (s *Source) target(day time.Time) target {
	class := (int(day.Weekday())+6)%7 + 1
	for _, h := range s.Holidays {
		if h == day.Format(time.DateOnly) {
			class = 7
		}
	}
	return target{class, max(class-5, 0)}
}
