package feeds

import (
	"math"
	"slices"
)

// Totals returns the flow and the speed of a whole carriageway that follow from the rows of one
// site: the sum of the flows of its lanes, and the mean of their speeds, weighted by flow. There is
// none without a flow, or without a speed where the flow is not 0, for each lane of the table in
// the same interval, or if the site publishes it.
func (t *Table) Totals(rows []Row) []Row {
	if t == nil || len(rows) == 0 {
		return nil
	}
	lanes := t.lanes(rows[0].Site)
	if len(lanes) == 0 {
		return nil
	}
	byCode := make(map[string]*Row, len(rows))
	for i := range rows {
		byCode[rows[i].Code] = &rows[i]
	}
	if byCode[Flow.String()] != nil || byCode[Speed.String()] != nil {
		return nil
	}
	var total Row
	distance, moving := 0.0, true
	for _, lane := range lanes {
		flow, speed := byCode[Flow.String()+"."+lane], byCode[Speed.String()+"."+lane]
		if flow == nil || flow.Outcome != Measured || total.Site != "" && (!flow.From.Equal(total.From) || !flow.To.Equal(total.To)) {
			return nil
		}
		total = Row{Site: flow.Site, From: flow.From, To: flow.To, Value: total.Value + flow.Value}
		switch {
		case flow.Value == 0:
		case speed == nil || speed.Outcome != Measured || !speed.From.Equal(flow.From) || !speed.To.Equal(flow.To):
			moving = false
		default:
			distance += flow.Value * speed.Value
		}
	}
	total.Measure, total.Code, total.Quality = Flow, Flow.String(), math.NaN()
	all := []Row{total}
	if total.Value > 0 && moving {
		total.Measure, total.Code, total.Value = Speed, Speed.String(), distance/total.Value
		all = append(all, total)
	}
	return all
}

// lanes returns the lanes for which the table has values of all vehicles, in its order: a mean must
// not depend on chance.
func (t *Table) lanes(site string) (lanes []string) {
	for _, c := range t.sites[site].columns {
		if c.class == "" && c.lane != "" && !slices.Contains(lanes, c.lane) {
			lanes = append(lanes, c.lane)
		}
	}
	return lanes
}
