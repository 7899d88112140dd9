package evaluate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
)

// vehicles returns the number of vehicles in a reading with this weight (package archive).
func vehicles(weight float64) float64 { return 2 * weight / (1 - weight) }

// uncounted is the weight of a reading without a count. A reading of 3 vehicles has it too, but is
// not compared.
const uncounted = 0.6

// noise estimates the deviation of the speeds of single vehicles within an interval, from half the
// squared differences of successive readings. These grow with the mean of 1/vehicles of both.
type noise struct{ n, x, y, xx, xy float64 }

// addNoise adds the readings of some intervals of all detectors.
func (e *Evaluation) addNoise(all []archive.Values, from, intervals int) {
	for _, v := range all {
		if e.noise[v.Code] == nil {
			e.noise[v.Code] = &noise{}
		}
		e.noise[v.Code].add(&v, from, from+intervals)
	}
}

func (s *noise) add(v *archive.Values, from, to int) {
	for i := from; i < to; i++ {
		if v.Reliable[i] == 0 || v.Reliable[i-1] == 0 || v.Weights[i] == uncounted || v.Weights[i-1] == uncounted {
			continue
		}
		d := v.Values[i] - v.Values[i-1]
		x, y := (1/vehicles(v.Weights[i])+1/vehicles(v.Weights[i-1]))/2, d*d/2
		s.n, s.x, s.y, s.xx, s.xy = s.n+1, s.x+x, s.y+y, s.xx+x*x, s.xy+x*y
	}
}

// share returns the slope of the regression of y on x within detectors, as a share of the mean of
// y: detectors have too few readings for slopes of their own. It returns 0 if there are no counts.
func share(all map[string]*noise) float64 {
	var slope, spread float64
	for _, code := range slices.Sorted(maps.Keys(all)) {
		if s := all[code]; s.n > 1 && s.y > 0 {
			slope += (s.xy - s.x*s.y/s.n) / (s.y / s.n)
			spread += s.xx - s.x*s.x/s.n
		}
	}
	if spread <= 0 {
		return 0
	}
	return max(slope/spread, 0)
}

// detector holds the sums of a detector.
type detector struct {
	code string
	*sums
}

// group adds what is computed from groups to a result.
func (e *Evaluation) group(r *Result, groups map[group]*sums) {
	var detectors []detector
	for g, s := range groups {
		if g.by == byDetector {
			detectors = append(detectors, detector{g.name, s})
		}
	}
	mae := func(d detector) float64 { return d.absolute[0] / d.n }
	slices.SortFunc(detectors, func(a, b detector) int { return cmp.Or(cmp.Compare(mae(b), mae(a)), cmp.Compare(a.code, b.code)) })
	var worst sums
	for _, d := range detectors[:(len(detectors)+9)/10] {
		worst.merge(d.sums)
	}
	r.Worst = worst.mae()
	if floor := e.floor(detectors) / float64(r.Readings); floor > 0 && r.MAE[2] > floor {
		r.Floor, r.Closed = &floor, new(100*(r.MAE[2]-r.MAE[0])/(r.MAE[2]-floor))
	}

	slices.SortFunc(detectors, func(a, b detector) int {
		return cmp.Or(cmp.Compare(a.vehicles, b.vehicles), cmp.Compare(a.code, b.code))
	})
	for i, d := range detectors {
		g := group{byVolume, tenth(i * 10 / len(detectors))}
		if groups[g] == nil {
			groups[g] = &sums{}
		}
		groups[g].merge(d.sums)
	}
	for _, g := range named() {
		if s := groups[g]; s != nil {
			of := Group{By: g.by, Name: g.name, Readings: int(s.n), MAE: s.mae()}
			if s.bounded > 0 {
				of.Coverage = new(100 * s.covered / s.bounded)
			}
			r.Groups = append(r.Groups, of)
		}
	}
}

// floor returns the sum of the absolute errors of forecasts of the true mean speeds: a reading of n
// vehicles deviates from it by 1/√n of the deviation of single vehicles.
func (e *Evaluation) floor(detectors []detector) (sum float64) {
	rate := share(e.noise)
	for _, d := range detectors {
		if s := e.noise[d.code]; s != nil && s.n > 1 {
			variance := s.y / s.n * min(rate, s.n/s.x) // the noise is at most all of the differences
			sum += math.Sqrt(2/math.Pi*variance) * d.deviation
		}
	}
	return sum
}

func tenth(n int) string { return fmt.Sprintf("tenth %d", n+1) }

func block(hour int) string {
	return fmt.Sprintf("%02d-%02d", hour/blockHours*blockHours, hour/blockHours*blockHours+blockHours)
}

// named lists the groups in results, in their order.
func named() (list []group) {
	for _, s := range model.States {
		list = append(list, group{byState, string(s)})
	}
	for _, b := range model.Bases {
		list = append(list, group{byBasis, string(b)})
	}
	for h := 0; h < 24; h += blockHours {
		list = append(list, group{byHours, block(h)})
	}
	for i := range 10 {
		list = append(list, group{byVolume, tenth(i)})
	}
	return list
}

func (s *sums) mae() (list [4]float64) {
	for i, a := range s.absolute {
		list[i] = a / max(s.n, 1)
	}
	return list
}

// merge adds what groups of detectors need.
func (s *sums) merge(o *sums) {
	s.n, s.bounded, s.covered = s.n+o.n, s.bounded+o.bounded, s.covered+o.covered
	for i, a := range o.absolute {
		s.absolute[i] += a
	}
}
