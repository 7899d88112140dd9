package status

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sample holds the values of all metrics at one time.
type sample struct {
	at      time.Time
	values  map[string]map[string]float64 // keyed by name without trafficd_, and by the value of the first label, or "" without labels
	latency []bucket                      // of ingest requests
}

type bucket struct {
	upper float64 // s
	count uint64  // of values up to upper
}

// newSample gathers a sample. It records the latency of the route ingestPath.
func newSample(from prometheus.Gatherer, ingestPath string, at time.Time) sample {
	s := sample{at: at, values: map[string]map[string]float64{}}
	families, _ := from.Gather() // also returns the families gathered despite an error
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "trafficd_")
		if !ours {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				if name == "api_request_seconds" && label == ingestPath {
					for _, b := range h.GetBucket() {
						s.latency = append(s.latency, bucket{b.GetUpperBound(), b.GetCumulativeCount()})
					}
					s.latency = append(s.latency, bucket{math.Inf(1), h.GetSampleCount()})
				}
				continue
			}
			if s.values[name] == nil {
				s.values[name] = map[string]float64{}
			}
			s.values[name][label] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return s
}

func (s *sample) sum(name string) (total float64) {
	for _, v := range s.values[name] {
		total += v
	}
	return total
}

// rate returns the increase of a counter per second since an earlier sample, or 0 without one.
func (s *sample) rate(before *sample, name, label string) float64 {
	seconds := s.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 {
		return 0
	}
	return max(0, s.values[name][label]-before.values[name][label]) / seconds
}

// rates returns the sum of rate over all labels.
func (s *sample) rates(before *sample, name string) (total float64) {
	for label := range s.values[name] {
		total += s.rate(before, name, label)
	}
	return total
}

// quantile returns the q-quantile of the latency between two samples in seconds, interpolated
// within a bucket as Prometheus does, or NaN if there were no requests.
func (s *sample) quantile(before *sample, q float64) float64 {
	if len(s.latency) == 0 {
		return math.NaN()
	}
	since := func(i int) float64 {
		n := float64(s.latency[i].count)
		if i < len(before.latency) {
			n -= float64(before.latency[i].count)
		}
		return n
	}
	total := since(len(s.latency) - 1)
	if total <= 0 {
		return math.NaN()
	}
	lower, below := 0.0, 0.0
	for i, b := range s.latency {
		if n := since(i); n >= q*total {
			if math.IsInf(b.upper, 1) {
				return lower
			}
			return lower + (b.upper-lower)*(q*total-below)/(n-below)
		} else {
			lower, below = b.upper, n
		}
	}
	return lower
}
