package ops

import (
	"encoding/json"
	"net/http"

	"trafficd/pipeline/metrics"
)

// State is the state of a component or of the daemon.
type State string

// The states, from best to worst.
const (
	OK       State = "ok"
	Degraded State = "degraded" // an operator should act, but at least one key can be served
	NotReady State = "not_ready"
)

// Component is the readiness of one part of the daemon.
type Component struct {
	State   State          `json:"state"`
	Reasons []string       `json:"reasons,omitempty"` // for operators; empty only if OK
	Detail  map[string]any `json:"detail,omitempty"`  // for operators and scripts
}

// Add adds a reason and changes the state to the given one if that is worse.
func (c *Component) Add(state State, reason string) {
	c.State = worse(c.State, state)
	c.Reasons = append(c.Reasons, reason)
}

// Readiness is the response body of /readyz. The status code is 503 if State is NotReady, else 200.
type Readiness struct {
	State      State                `json:"state"`
	Components map[string]Component `json:"components"`
}

// NewReadiness returns the readiness of the components, whose State is that of the worst one.
func NewReadiness(components map[string]Component) Readiness {
	r := Readiness{State: OK, Components: components}
	for _, c := range components {
		r.State = worse(r.State, c.State)
	}
	return r
}

// ready returns the value of the readiness metric.
func (r Readiness) ready() float64 { return metrics.Bool(r.State != NotReady) }

func worse(a, b State) State {
	rank := map[State]int{"": 0, OK: 1, Degraded: 2, NotReady: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

func (r Readiness) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if r.State == NotReady {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r) // fails only if the client has disconnected
}
