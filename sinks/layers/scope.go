package layers

import "time"

// scope is which periods of a street a document shows.
type scope struct {
	horizon instant // how far ahead; of no meaning where whole
	whole   bool    // all periods that have not ended
}

func wholeLayer() scope { return scope{whole: true} }

func atHorizon(minutes int) scope {
	return scope{horizon: instant((time.Duration(minutes) * time.Minute).Microseconds())}
}

// pick appends the periods of s that belong at the reference time ref, and tells
// from which reference time on the answer may be another. A horizon picks the one period
// that covers ref + horizon; where several do, the one that begins last, because
// it is the more particular one.
func (c scope) pick(into []*period, s *street, ref instant) (picked []*period, until instant) {
	if c.whole {
		return pickWhole(into, s, ref)
	}
	at, until := ref+c.horizon, never
	var covering *period
	for i := range s.periods {
		p := &s.periods[i]
		if p.from <= at && at < p.to {
			covering = p
		}
		for _, edge := range [2]instant{p.from, p.to} {
			if edge > at {
				until = min(until, edge-c.horizon)
			}
		}
	}
	if covering != nil {
		into = append(into, covering)
	}
	return into, until
}

func pickWhole(into []*period, s *street, ref instant) (picked []*period, until instant) {
	until = never
	for i := range s.periods {
		if p := &s.periods[i]; p.to > ref {
			into = append(into, p)
			until = min(until, p.to)
		}
	}
	return into, until
}
