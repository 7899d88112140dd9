package status

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/internal/ops"
	"trafficd/cmd/trafficd/config"
)

// summary returns what clients see, and then a sentence for each component that is not OK, worst
// first, with the problem and the remedy. For a store, the sentence also says how long it has been
// failing, how many measurements are waiting for it, and how long the journal has room for more.
func (r *Recorder) summary(s, oldest *sample, ready ops.Readiness, now time.Time) []string {
	rank := map[ops.State]int{ops.NotReady: 0, ops.Degraded: 1}
	names := slices.SortedFunc(maps.Keys(ready.Components), func(a, b string) int {
		return cmp.Or(rank[ready.Components[a].State]-rank[ready.Components[b].State], cmp.Compare(a, b))
	})
	sentences := consequences(ready)
	said := map[string]int{} // index of the sentence with these reasons
	for _, name := range names {
		c := ready.Components[name]
		if c.State == ops.OK {
			continue
		}
		var since string
		began := r.trouble[troubleOf(name, c)]
		if stalled, _ := c.Detail["stalled_seconds"].(float64); fails(c) && stalled > 0 { // began before the first error
			if at := now.Add(-time.Duration(stalled * float64(time.Second))); began.IsZero() || at.Before(began) {
				began = at
			}
		}
		if !began.IsZero() && now.Sub(began) >= step {
			since = "for " + about(now.Sub(began))
		}
		reasons := strings.Join(c.Reasons, "; ")
		if rows, ok := s.values["pipeline_lag_rows"][name]; ok {
			what, why := "is slow", "reason"
			if fails(c) {
				what, why = strings.TrimSpace("has accepted no measurements "+since), "error"
			}
			waiting := "about " + Measurements(rows)
			if c.Detail["counted"] == false {
				waiting = "an unknown number of measurements is"
			}
			sentences = append(sentences, fmt.Sprintf("%s %s; %s waiting in the journal%s. The %s is: %s.",
				cmp.Or(config.TitleOf(name), name), what, waiting, r.room(s, oldest), why, reasons))
			continue
		}
		if since != "" {
			name += " (" + since + ")"
		}
		if at, ok := said[reasons]; ok { // one cause in several components
			sentences[at] = strings.Replace(sentences[at], ": "+reasons, ", "+name+": "+reasons, 1)
			continue
		}
		said[reasons] = len(sentences)
		sentences = append(sentences, fmt.Sprintf("%s: %s.", name, reasons))
	}
	return sentences
}

// consequences returns a sentence for each purpose that the daemon does not serve. There is none
// while it starts or drains.
func consequences(ready ops.Readiness) []string {
	sentences := []string{}
	switch {
	case ready.Components["daemon"].State != ops.OK || len(ready.Serves) == 0:
	case ready.State == ops.NotReady:
		sentences = append(sentences, "Every request is rejected.")
	default:
		for _, purpose := range slices.Sorted(maps.Keys(ready.Serves)) {
			if !ready.Serves[purpose] {
				sentences = append(sentences, "Every request for "+purpose+" is rejected.")
			}
		}
	}
	return sentences
}

// fails reports whether a component is a store that accepts no measurements.
func fails(c ops.Component) bool { return c.Detail["error"] != nil }

// troubleOf returns a key for a component's problem. A store that fails has a key of its own.
func troubleOf(name string, c ops.Component) string {
	if fails(c) {
		return name + " fails"
	}
	return name
}

// room describes how long the journal can grow at its rate of growth since an earlier sample. It
// returns "" if the journal is in Kafka.
func (r *Recorder) room(s, before *sample) string {
	size, limit := r.journal(s, "bytes"), r.journal(s, "bytes_limit")
	if limit == 0 {
		return ""
	}
	var growth float64
	if before.values["journal_bytes"] != nil && s.at.Sub(before.at) >= step { // the first sample may be taken before the journal is open
		growth = (size - r.journal(before, "bytes")) / s.at.Sub(before.at).Seconds()
	}
	free := min(limit-size, r.journal(s, "disk_free_bytes")-r.journal(s, "disk_free_bytes_min"))
	switch {
	case free <= 0:
		return ", which is full: batches are rejected with 503 until the store is available again"
	case growth <= 0:
		return fmt.Sprintf(", which is %.0f%% full", math.Ceil(100*size/limit))
	}
	return fmt.Sprintf(", which has room for %s at this rate", about(time.Duration(min(free/growth, 1e9)*float64(time.Second))))
}

// about formats a duration in its largest unit.
func about(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*u.size {
			return fmt.Sprintf("%d %s", d/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// Measurements returns the subject and verb of a sentence about n measurements: "1 measurement is",
// "1.23 M measurements are".
func Measurements(n float64) string {
	if n == 1 {
		return "1 measurement is"
	}
	return count(n) + " measurements are"
}

// count formats a number with about three significant digits.
func count(n float64) string {
	switch {
	case n >= 999_500: // rounded to a million
		return fmt.Sprintf("%.3g M", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0f,000", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}
