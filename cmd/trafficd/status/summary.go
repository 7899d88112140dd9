package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"trafficd/cmd/internal/ops"
)

// summary returns a sentence for each component that is not OK, worst first. For a store it says since when it fails,
// what waits for it, and for how long the journal has room.
func (r *Recorder) summary(s, oldest *sample, ready ops.Readiness, now time.Time) []string {
	rank := map[ops.State]int{ops.NotReady: 0, ops.Degraded: 1}
	names := slices.SortedFunc(maps.Keys(ready.Components), func(a, b string) int {
		return cmp.Or(rank[ready.Components[a].State]-rank[ready.Components[b].State], cmp.Compare(a, b))
	})
	sentences := []string{}
	for _, name := range names {
		c := ready.Components[name]
		if c.State == ops.OK {
			continue
		}
		for i, reason := range c.Reasons {
			text := fmt.Sprintf("%s: %s.", name, reason)
			if since := r.trouble[name]; !since.IsZero() && now.Sub(since) >= step {
				text = fmt.Sprintf("%s, for %s: %s.", name, about(now.Sub(since)), reason)
			}
			if _, store := s.values["pipeline_lag_frames"][name]; store && i == 0 {
				text += fmt.Sprintf(" About %s measurements are waiting in the journal%s.", count(s.rowsWaiting(name)), room(s, oldest))
			}
			sentences = append(sentences, text)
		}
	}
	return sentences
}

// room says for how long the journal can grow as it did since an earlier sample.
func room(s, before *sample) string {
	var growth float64
	if before.values["journal_bytes"] != nil && s.at.Sub(before.at) >= step { // the first sample may be taken before the journal is open
		growth = (s.sum("journal_bytes") - before.sum("journal_bytes")) / s.at.Sub(before.at).Seconds()
	}
	free := min(s.sum("journal_bytes_limit")-s.sum("journal_bytes"), s.sum("journal_disk_free_bytes")-s.sum("journal_disk_free_bytes_min"))
	switch {
	case free <= 0:
		return ", which is full: batches are refused until the store is back"
	case growth <= 0:
		return ""
	}
	return fmt.Sprintf(", which has room for %s at this rate", about(time.Duration(min(free/growth, 1e9)*float64(time.Second))))
}

// about returns a duration in its largest unit.
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

// count returns a number with three digits and a prefix.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.3g M", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0f,000", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}
