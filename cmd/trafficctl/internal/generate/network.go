package generate

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
)

// Shape of the network.
const (
	stationsPerRoad = 40
	lanesPerStation = 2
	centreLatitude  = 50.0
	centreLongitude = 10.0
	metresPerDegree = 111_320.0
)

// Random streams that no detector uses.
const (
	roadStream  = math.MaxUint64
	faultStream = math.MaxUint64 - 1
)

// Network is a set of detectors. It is not safe for concurrent use, and its measurements can be generated
// once.
type Network struct {
	cfg       Config
	detectors []detector
}

// New generates the detectors.
func New(cfg Config) (*Network, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Network{cfg: cfg, detectors: make([]detector, cfg.Detectors)}
	roads := rand.New(rand.NewPCG(cfg.Seed, roadStream))
	var r road
	for i := range n.detectors {
		if i%(stationsPerRoad*lanesPerStation) == 0 {
			r = newRoad(roads, i/(stationsPerRoad*lanesPerStation))
		}
		n.detectors[i] = newDetector(&cfg, i, &r)
	}
	return n, nil
}

// WriteRegistry writes the detectors as CSV for a daemon's registry feed, with the column detectorCode.
func (n *Network) WriteRegistry(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "detectorCode,measureTypes,latitude,longitude")
	for i := range n.detectors {
		d := &n.detectors[i]
		fmt.Fprintf(out, "%s,%s,%.6f,%.6f\n", d.code, strings.Join(d.types, "+"), d.latitude, d.longitude)
	}
	return out.Flush()
}

// road is a straight line of stations.
type road struct {
	number              int
	latitude, longitude float64
	heading             float64
	freeSpeed           float64 // km/h
	metre               int     // of the last station
}

func newRoad(r *rand.Rand, number int) road {
	return road{
		number:    number,
		latitude:  centreLatitude + r.NormFloat64()*0.2,
		longitude: centreLongitude + r.NormFloat64()*0.3,
		heading:   r.Float64() * 2 * math.Pi,
		freeSpeed: []float64{50, 70, 100, 120}[r.IntN(4)],
	}
}

// station returns the position at a distance along the road.
func (r *road) station(metre int) (latitude, longitude float64) {
	along := float64(metre) / metresPerDegree
	latitude = r.latitude + along*math.Cos(r.heading)
	return latitude, r.longitude + along*math.Sin(r.heading)/math.Cos(latitude*math.Pi/180)
}
