package streets

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/openlr"
)

func read(t *testing.T, name, text string) Content {
	t.Helper()
	c := DefaultConfig()
	c.Path = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(c.Path, []byte(text), 0o600))
	content, err := Read(c)
	require.NoError(t, err)
	return content
}

func TestRead(t *testing.T) {
	want := []Street{
		{Street: 7, FromNode: -1, Detectors: []string{"C"}, Lengths: []float64{1}},
		{Street: 7, FromNode: 2, OpenLR: "CwRbWyNG9RpsCQCb/jsb", Detectors: []string{"A", "B", "D"}, Lengths: []float64{100, 300, 200}, Length: 600},
	}
	f := func(name, text string) {
		t.Helper()
		got := read(t, name, text)
		require.Equal(t, want, got.Streets)
		require.Equal(t, 1, got.Unplaced)
		require.ErrorContains(t, got.Invalid, `detector "F"`)
	}
	f("a.csv", "detectorCode,street,fromnode,openlr,length\n"+
		"B,7,2,CwRbWyNG9RpsCQCb/jsb,300\nA,7,2,,100\nC,7,-1,,\nD,7,2,,\nE,,,,\nF,x,1,,\n")
	f("b.csv", "\xef\xbb\xbfstreet;detectorCode;fromnode;length;openlr\r\n7;B;2;300;CwRbWyNG9RpsCQCb/jsb\r\n"+
		"7;A;2;100;\r\n7;C;-1;;\r\n7;D;2;;\r\n;E;;;\r\n99999999999;F;;;\r\n")
	f("c.json", "\ufeff"+`[{"detectorCode":"B","street":7,"fromnode":2,"length":300,"openlr":"CwRbWyNG9RpsCQCb/jsb"},
		{"detectorCode":"A","street":"7","fromnode":2,"length":100}, {"detectorCode":"C","street":7,"fromnode":-1},
		{"detectorCode":"D","street":7,"fromnode":2}, {"detectorCode":"E"}, {"detectorCode":"F","street":0}]`)
}

// TestNameAndGeometry checks that a street has the first name and the first course of its
// detectors, and that an invalid course is reported but does not exclude the detector.
func TestNameAndGeometry(t *testing.T) {
	content := read(t, "a.csv", "detectorCode,street,name,geometry\n"+
		"A,7,,\nB,7,Ring 1,\"LINESTRING (10 50.5, 10.0000004 50.6, -3 51)\"\nC,7,Other,LINESTRING EMPTY\nD,8,,POINT (1 2)\n")
	require.Len(t, content.Streets, 2)
	require.Equal(t, "Ring 1", content.Streets[0].Name)
	require.Equal(t, []float64{10, 50.5, 10, 50.6, -3, 51}, content.Streets[0].Geometry)
	require.Equal(t, []string{"D"}, content.Streets[1].Detectors)
	require.Nil(t, content.Streets[1].Geometry)
	require.EqualError(t, content.Invalid, `the geometry of detector "D" is ignored: it is "POINT (1 2)", `+
		`must be a LINESTRING with at least two points, such as LINESTRING (10.2 56.15, 10.21 56.16)`)
}

// TestNoStreet checks that a file without any street is an error: it would remove every forecast.
func TestNoStreet(t *testing.T) {
	f := func(name, text, want string) {
		t.Helper()
		c := DefaultConfig()
		c.Path = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(c.Path, []byte(text), 0o600))
		_, err := Read(c)
		require.ErrorContains(t, err, want)
	}
	f("a.csv", "detectorCode,road\nA,1\n", `no detector has a valid street in "street"`)
	f("b.csv", "detectorCode,street\nA,main\n", `detector "A"`)
	f("c.csv", "code,street\nA,1\n", `no column "detectorCode"`)
	f("d.csv", "", `the file is empty`)
	f("d.csv", "detectorCode,street\n", `no detector has a code in "detectorCode"`)
	f("e.json", `[{"detectorCode":"A","street":7}] [`, "invalid or truncated JSON")
}

// TestManyInvalidDetectors checks that the error names some detectors and counts the others.
func TestManyInvalidDetectors(t *testing.T) {
	text := "detectorCode,street\nA,1\n" + strings.Repeat("A,1\n", 1000)
	err := read(t, "a.csv", text).Invalid
	require.ErrorContains(t, err, `detector "A" is ignored`)
	require.ErrorContains(t, err, "990 more")
	require.Less(t, len(err.Error()), 2000)
}

// TestUnusableOpenLR checks that a detector whose OpenLR code cannot be part of a record is
// ignored: the record would prevent every publication, or the daemon would skip it.
func TestUnusableOpenLR(t *testing.T) {
	content := read(t, "a.csv", "detectorCode,street,openlr\nA,1,\xff\nB,2,CwRbWyNG9RpsCQCb/jsb\nC,3,"+strings.Repeat("A", 4097)+"\n")
	require.Equal(t, []Street{{Street: 2, OpenLR: "CwRbWyNG9RpsCQCb/jsb", Detectors: []string{"B"}, Lengths: []float64{1}}}, content.Streets)
	require.ErrorContains(t, content.Invalid, `detector "A" is ignored: its OpenLR code`)
	require.ErrorContains(t, content.Invalid, `detector "C" is ignored: its OpenLR code`)
}

func TestLocationFromEndPoints(t *testing.T) {
	s := read(t, "a.csv", "detectorCode,street,fromnode,from_lat,from_lon,to_lat,to_lon,length\n"+
		"A,1,2,56.1,10.1,56.1,10.2,7000\n").Streets[0]
	line, err := openlr.Decode(s.OpenLR)
	require.NoError(t, err)
	require.InDelta(t, 56.1, line.Points[0].Lat, 1e-4)
	require.InDelta(t, 10.2, line.Points[1].Lon, 1e-4)
	require.InDelta(t, 90, line.Points[0].Bearing, openlr.BearingTolerance)
	require.InDelta(t, 7000, line.Points[0].Distance, openlr.DistanceTolerance)
}

// TestLongStreet checks that the code of a street that is too long for two points expresses its
// length, which is at least that of the straight line.
func TestLongStreet(t *testing.T) {
	f := func(ends, length string, metres float64) {
		t.Helper()
		content := read(t, "a.csv", "detectorCode,street,from_lat,from_lon,to_lat,to_lon,length\nA,1,"+ends+","+length+"\n")
		require.NoError(t, content.Locations)
		line, err := openlr.Decode(content.Streets[0].OpenLR)
		require.NoError(t, err)
		sum := 0
		for _, p := range line.Points {
			sum += p.Distance
		}
		require.InDelta(t, metres, sum, openlr.DistanceTolerance*float64(len(line.Points)))
	}
	f("56.1,10.1,56.1,10.2", "15000", 15_000)
	f("56.1,10.1,56.1,10.2", "21000", 21_000)
	f("69,18,69,18.5", "", 19_947)
	f("69,18,69,18.5", "5000", 19_947)
	f("-28,133,-29.3,131.3", "", 220_200)
}

// TestNoLocation checks that streets without a location are published, counted and named with the
// reason.
func TestNoLocation(t *testing.T) {
	f := func(row, want string) {
		t.Helper()
		content := read(t, "a.csv", "detectorCode;street;from_lat;from_lon;to_lat;to_lon;openlr;length\n"+
			"A;1;56.1;10.1;56.1;10.2;;\nB;2;"+row+"\nC;2;;;;;;\n")
		require.Len(t, content.Streets, 2)
		require.Equal(t, 1, content.Unlocated)
		require.NoError(t, content.Invalid)
		require.EqualError(t, content.Locations, "street 2 from node 0 has no location: "+want)
	}
	f("56,1;10,1;56,1;10,2;;", `detector "B": from_lat is "56,1", must be a number of degrees such as 56.15`)
	f("95;10;95.1;10;;", `detector "B": cannot encode OpenLR line with 2 points: point 0: latitude 95.0000000 is not between -90 and 90`)
	f("-17;179.9;-17;-179.9;;", `detector "B": cannot encode OpenLR line with 2 points: point 1: longitude -179.90000 follows 179.90000: `+
		"the format cannot express a line across the 180th meridian")
	f("56.1;10.1;0;0;;9e9", `detector "B": cannot encode OpenLR line with 2 points: point 0: distance 1000000000 m to the next point must be 0 to 15001`)
	f("56.1;10.1;;;;", `detector "B": only some of from_lat, from_lon, to_lat, to_lon are set`)
	f(";;;;4,71E+05;", `detector "B": cannot decode OpenLR code "4,71E+05": illegal base64 data at input byte 1`)
	f(";;;;;", "none of its detectors has an OpenLR code or the coordinates of its ends")

	content := read(t, "a.csv", "detectorCode,street,openlr\nA,1,other\n")
	require.Equal(t, "other", content.Streets[0].OpenLR, "another format may be meant")
	content = read(t, "a.csv", "detectorCode,street,openlr\nA,1,other\nB,1,"+twoPoints+"\n")
	require.NoError(t, content.Locations)
	require.Equal(t, twoPoints, content.Streets[0].OpenLR)

	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "%d,%d\n", i, i+1)
	}
	content = read(t, "a.csv", "detectorCode,street\n"+many.String())
	require.Equal(t, 1000, content.Unlocated)
	require.ErrorContains(t, content.Locations, "990 more streets have no location")
}

const twoPoints = "CwNhbCU+jzPLAwD0/34zGw=="

// TestInvalidLength checks that a length that is not a positive number counts as missing.
func TestInvalidLength(t *testing.T) {
	content := read(t, "a.csv", "detectorCode,street,length,from_lat,from_lon,to_lat,to_lon\n"+
		"A,1,NaN,56.1,10.1,56.1,10.2\nB,1,200,,,,\nC,1,Inf,,,,\nD,1,-5,,,,\nE,1,long,,,,\n")
	require.Equal(t, []float64{200, 200, 200, 200, 200}, content.Streets[0].Lengths)
	line, err := openlr.Decode(content.Streets[0].OpenLR)
	require.NoError(t, err)
	require.InDelta(t, 6209, line.Points[0].Distance, openlr.DistanceTolerance, "the distance of the end points")
}

// TestSpeed checks that a street's speed is its length divided by its travel time.
func TestSpeed(t *testing.T) {
	s := Street{Lengths: []float64{100, 300}}
	require.InDelta(t, 400/(100/20.0+300/60.0), s.Speed([]float64{20, 60}), 1e-12)
	require.InDelta(t, 60, s.Speed([]float64{math.NaN(), 60}), 1e-12)
	require.True(t, math.IsNaN(s.Speed([]float64{math.NaN(), math.NaN()})))
}
