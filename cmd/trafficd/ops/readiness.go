package ops

import (
	"encoding/json"
	"net/http"
)

// State is how a component is.
type State string

// The states of a component, and of the daemon as a whole.
const (
	OK       State = "ok"
	Degraded State = "degraded" // something is to be done, but batches are accepted
	NotReady State = "not_ready"
)

// Component is one component's answer.
type Component struct {
	State   State          `json:"state"`
	Reasons []string       `json:"reasons,omitempty"` // for a person; empty only when OK
	Detail  map[string]any `json:"detail,omitempty"`  // numbers for a person and for scripts
}

// Fine is a component without reasons.
func Fine(detail map[string]any) Component { return Component{State: OK, Detail: detail} }

// Add puts a reason to a component and makes it at least as bad as state.
func (c *Component) Add(state State, reason string) {
	c.State = worse(c.State, state)
	c.Reasons = append(c.Reasons, reason)
}

// Readiness is the answer of /readyz: 200 while batches are accepted, else 503.
type Readiness struct {
	State      State                `json:"state"`
	Components map[string]Component `json:"components"`
}

// Judge makes the readiness of the whole: it is as good as its worst component.
func Judge(components map[string]Component) Readiness {
	r := Readiness{State: OK, Components: components}
	for _, c := range components {
		r.State = worse(r.State, c.State)
	}
	return r
}

// ready is the readiness as a metric.
func (r Readiness) ready() uint64 {
	if r.State == NotReady {
		return 0
	}
	return 1
}

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
	_ = e.Encode(r) // an error means that the client has gone
}
