package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/traffic/roads"
	"trafficd/schemas/openlr"
)

// townLine is a line of the map for decode.py.
type townLine struct {
	Nodes  []int64                    `json:"nodes"`
	Course [][2]float64               `json:"course"`
	Class  openlr.FunctionalRoadClass `json:"class"`
	Form   openlr.FormOfWay           `json:"form"`
}

// TestOtherMatcher checks that an independent decoder finds the same paths on the same map, or that
// route match is right where the other is not.
func TestOtherMatcher(t *testing.T) {
	python := filepath.Join(openlrPython(t), "bin", "python")
	dir := t.TempDir()
	m := roads.Town(20, 5)
	town, err := os.Create(filepath.Join(dir, "town.osm.pbf"))
	require.NoError(t, err)
	require.NoError(t, m.WritePBF(town))
	require.NoError(t, town.Close())
	g := roads.NewGraph(m)

	var job struct {
		Lines []townLine `json:"lines"`
		Codes []string   `json:"codes"`
	}
	for _, stretch := range g.Stretches() {
		line := townLine{Class: stretch[0].Class, Form: stretch[0].Form}
		for i, a := range stretch {
			if i == 0 {
				line.Nodes, line.Course = []int64{g.Nodes[a.From].ID}, [][2]float64{{g.Nodes[a.From].Lon, g.Nodes[a.From].Lat}}
			}
			line.Nodes = append(line.Nodes, g.Nodes[a.To].ID)
			line.Course = append(line.Course, [2]float64{g.Nodes[a.To].Lon, g.Nodes[a.To].Lat})
		}
		job.Lines = append(job.Lines, line)
	}
	r := rand.New(rand.NewPCG(7, 7))
	list := "detectorCode,street,openlr\n"
	var truth [][]int64
	for len(truth) < 300 {
		p, ok := g.Random(r, 100+1000*r.Float64())
		if !ok {
			continue
		}
		p.Start, p.End = 0, 0 // the other decoder returns whole lines
		line := g.Line(p)
		if len(truth)%2 == 1 {
			line = roads.Perturbed(r, line, 5)
		}
		code, err := openlr.Encode(line)
		require.NoError(t, err)
		truth, job.Codes = append(truth, g.Pairs(p)), append(job.Codes, code)
		list += fmt.Sprintf("D%d,%d,%s\n", len(truth), len(truth), code)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "list.csv"), []byte(list), 0o600))
	input, err := json.Marshal(job)
	require.NoError(t, err)
	other := exec.CommandContext(t.Context(), python, "testdata/openlr/decode.py")
	other.Stdin, other.Stderr = bytes.NewReader(input), os.Stderr
	answers, err := other.Output()
	require.NoError(t, err)

	match := exec.CommandContext(t.Context(), foreign.Trafficctl(t), "route", "match", "--map", "town.osm.pbf", "--list", "list.csv",
		"--output", "out.ndjson")
	match.Dir = dir
	report, err := match.CombinedOutput()
	if err != nil {
		require.Equal(t, 2, match.ProcessState.ExitCode(), "%s", report) // some are ambiguous
	}
	t.Logf("%s", report)
	matches, err := os.ReadFile(filepath.Join(dir, "out.ndjson"))
	require.NoError(t, err)

	lines := func(text []byte) []string { return strings.Split(strings.TrimSpace(string(text)), "\n") }
	ours, theirs := lines(matches), lines(answers)
	require.Len(t, ours, len(truth))
	require.Len(t, theirs, len(truth))
	table := map[string]int{}
	for i := range truth {
		var own struct {
			State string
			Nodes []int64
		}
		var their struct {
			Nodes []int64
			Error string
		}
		require.NoError(t, json.Unmarshal([]byte(ours[i]), &own))
		require.NoError(t, json.Unmarshal([]byte(theirs[i]), &their))
		switch right := slices.Equal(their.Nodes, truth[i]); {
		case right && slices.Equal(own.Nodes, truth[i]):
			table["equal, "+own.State]++
		case right:
			table["only the other is right, "+own.State]++
		case their.Error != "":
			table["the other finds nothing, "+own.State]++
			require.True(t, own.State != "matched" || slices.Equal(own.Nodes, truth[i]), job.Codes[i])
		default:
			table["the other is wrong, "+own.State]++
			require.True(t, own.State != "matched" || slices.Equal(own.Nodes, truth[i]), job.Codes[i])
		}
	}
	t.Log(table)
	require.Zero(t, table["only the other is right, matched"])
	require.Zero(t, table["only the other is right, unmatched"])
	require.Greater(t, table["equal, matched"], len(truth)*8/10)
}
