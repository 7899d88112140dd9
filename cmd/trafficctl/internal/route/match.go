// Package route connects the streets of the forecast layer with a road network from OpenStreetMap.
package route

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// State is the result of matching a street.
type State string

// The states of a match.
const (
	Matched   State = "matched"
	Ambiguous State = "ambiguous" // the best path; another one is nearly as good
	Unmatched State = "unmatched" // without a path
)

// Match is the path of a street, in one direction, on OpenStreetMap: a line of the file that match
// writes.
type Match struct {
	Street   int32  `json:"street_id"`
	FromNode int32  `json:"fromnode_id"`
	State    State  `json:"state"`
	Reason   string `json:"reason,omitempty"` // of an ambiguous or unmatched street

	// Nodes are consecutive OSM nodes in the direction of travel; Ways are the OSM ways between them.
	Ways  []int64 `json:"ways,omitempty"`
	Nodes []int64 `json:"nodes,omitempty"`

	Coordinates [][2]float64 `json:"coordinates,omitempty"` // of Nodes: [longitude, latitude] in degrees

	// The street starts and ends inside the first and the last pair of nodes: by these metres after
	// the first node and before the last one. Length is what is left of the path.
	PositiveOffset float64 `json:"positive_offset"`
	NegativeOffset float64 `json:"negative_offset"`
	Length         float64 `json:"length"`
}

// check returns an error if the path cannot be used.
func (m *Match) check() error {
	n := len(m.Nodes)
	switch {
	case m.State != Matched && m.State != Ambiguous && m.State != Unmatched:
		return fmt.Errorf("unknown state %.20q", m.State)
	case m.State == Unmatched && n == 0:
		return nil
	case n < 2 || len(m.Ways) != n-1 || len(m.Coordinates) != n:
		return fmt.Errorf("%d nodes need %d ways and %d coordinates, got %d and %d",
			n, max(n-1, 0), n, len(m.Ways), len(m.Coordinates))
	case !(m.PositiveOffset >= 0 && m.NegativeOffset >= 0 && m.Length >= 0):
		return errors.New("negative offset or length")
	}
	return nil
}

// WriteMatches writes a line for each match.
func WriteMatches(w io.Writer, matches []Match) error {
	e := json.NewEncoder(w)
	for i := range matches {
		if err := e.Encode(&matches[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadMatches reads what WriteMatches has written.
func ReadMatches(r io.Reader) (matches []Match, err error) {
	d := json.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	for {
		var m Match
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return matches, nil
		}
		if err = cmp.Or(err, m.check()); err != nil {
			return nil, fmt.Errorf("match %d: %w; create the file again with trafficctl route match", len(matches)+1, err)
		}
		matches = append(matches, m)
	}
}

// Course returns the positions along the street, without the offsets.
func (m *Match) Course() (line [][2]float64) {
	total := 0.0
	for i, p := range m.Coordinates[min(1, len(m.Coordinates)):] {
		total += Distance(m.Coordinates[i], p)
	}
	at, low, high := 0.0, m.PositiveOffset, total-m.NegativeOffset
	for i := 1; i < len(m.Coordinates); i++ {
		a, b := m.Coordinates[i-1], m.Coordinates[i]
		size := Distance(a, b)
		if at+size > low && at < high {
			if line == nil {
				line = append(line, between(a, b, max(0, (low-at)/size)))
			}
			line = append(line, between(a, b, min(1, (high-at)/size)))
		}
		at += size
	}
	return line
}

// WKT returns the course as a LINESTRING.
func (m *Match) WKT() string {
	var text strings.Builder
	for i, p := range m.Course() {
		text.WriteString([]string{"LINESTRING (", ", "}[min(i, 1)])
		fmt.Fprintf(&text, "%.6f %.6f", p[0], p[1])
	}
	return text.String() + ")"
}
