package route_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/route"
)

func TestReadMatches(t *testing.T) {
	matches := []route.Match{
		{
			Street: 12, FromNode: 34, State: route.Matched, Ways: []int64{7, 8}, Nodes: []int64{1, 2, 3},
			Coordinates: [][2]float64{{10, 56}, {10.001, 56}, {10.002, 56}}, PositiveOffset: 1.5, Length: 122,
		},
		{Street: 13, FromNode: 34, State: route.Unmatched, Reason: "no road"},
	}
	var file strings.Builder
	require.NoError(t, route.WriteMatches(&file, matches))
	got, err := route.ReadMatches(strings.NewReader(file.String()))
	require.NoError(t, err)
	require.Equal(t, matches, got)

	f := func(line, want string) {
		t.Helper()
		_, err := route.ReadMatches(strings.NewReader(file.String() + line))
		require.ErrorContains(t, err, "match 3: "+want)
	}
	f(`{"state":`, "unexpected EOF")
	f(`{"state":"found"}`, `unknown state "found"`)
	f(`{"state":"matched"}`, "0 nodes need 0 ways and 0 coordinates, got 0 and 0")
	f(`{"state":"matched","nodes":[1,2],"ways":[],"coordinates":[[1,2],[1,2]]}`, "2 nodes need 1 ways and 2 coordinates, got 0 and 2")
	f(`{"state":"matched","nodes":[1,2],"ways":[3],"coordinates":[[1,2],[1,2]],"length":-1}`, "negative")
}
