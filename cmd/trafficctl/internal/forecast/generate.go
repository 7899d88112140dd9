package forecast

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"trafficd/cmd/trafficctl/internal/generate"

	"google.golang.org/protobuf/proto"

	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Config says what to generate. Each field is the flag of that name.
type Config struct {
	Streets int
	From    time.Time // start of the first period
	Periods int
	Step    time.Duration // length of a period
	Seed    uint64
}

// DefaultConfig is six hours for a town. The caller sets From.
func DefaultConfig() Config {
	return Config{Streets: 1000, Periods: 24, Step: 15 * time.Minute, Seed: 1}
}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.Streets < 1 || c.Streets > 1_000_000_000:
		return fmt.Errorf("--streets %d must be 1 to 1,000,000,000 (identifiers have 32 bits)", c.Streets)
	case c.Periods < 1 || c.Periods > 10_000:
		return fmt.Errorf("--periods %d must be 1 to 10,000, the daemon's limit", c.Periods)
	case c.Step < time.Second || c.Step > 24*time.Hour || c.Step%time.Second != 0:
		return fmt.Errorf("--step %s must be whole seconds from 1s to 24h", c.Step)
	case c.From.Year() < 1970 || c.end().Year() > 2261:
		return errors.New("--from and the last period must be in the years 1970 to 2261, which the daemon accepts")
	}
	return nil
}

func (c Config) end() time.Time { return c.From.Add(time.Duration(c.Periods) * c.Step) }

// Generate generates a forecast for each location reference in codes, or for a synthetic network if
// codes is nil. The same arguments give the same forecasts.
func Generate(cfg Config, codes []string) (iter.Seq[*pb.StreetForecast], error) {
	if codes != nil {
		cfg.Streets = len(codes)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return func(yield func(*pb.StreetForecast) bool) {
		for i := range cfg.Streets {
			r := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
			f := &pb.StreetForecast{Street: int32(i/2) + 1, Fromnode: int32(i) + 1}
			if codes != nil {
				f.OpenLRcode = codes[i]
			} else {
				f.OpenLRcode = newCode(cfg.Seed, i)
			}
			f.Forecast = periods(cfg, r, freeSpeed(f.OpenLRcode))
			if !yield(f) {
				return
			}
		}
	}, nil
}

// periods follows the rush hours of UTC days, with autocorrelated noise.
func periods(cfg Config, r *rand.Rand, free float64) []*pb.ForecastPeriod {
	all := make([]*pb.ForecastPeriod, cfg.Periods)
	burden, noise := 0.2+0.5*r.Float64(), 0.0
	for i := range all {
		start := cfg.From.Add(time.Duration(i) * cfg.Step)
		noise = 0.8*noise + 0.03*r.NormFloat64()
		share := min(1.1, max(0.05, 1-burden*rush(start)+noise))
		all[i] = &pb.ForecastPeriod{
			Start: format(start), End: format(start.Add(cfg.Step)),
			SpeedValid: proto.Bool(true), Speed: math.Round(10*free*share) / 10,
		}
	}
	return all
}

func format(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// rush is 0 off-peak and about 1 at 08:00 and 17:00, and less on weekends.
func rush(t time.Time) float64 {
	t = t.UTC()
	hour := float64(t.Hour()) + float64(t.Minute())/60
	peak := bell((hour-8)/1.5) + bell((hour-17)/2)
	if day := t.Weekday(); day == time.Saturday || day == time.Sunday {
		peak /= 3
	}
	return min(1, peak)
}

func bell(x float64) float64 { return math.Exp(-x * x) }

// Shape of the network: roads of several streets, with the two directions of a street in a row.
const (
	streetsPerRoad = 40
	streetMetres   = 400
)

// roadStream separates the random numbers of roads from those of streets.
const roadStream = 1 << 63

// newCode returns the location reference of street i: a straight section of its road.
func newCode(seed uint64, i int) string {
	street, back := i/2, i%2 == 1
	r := rand.New(rand.NewPCG(seed, roadStream|uint64(street/streetsPerRoad)))
	road, class := generate.NewLine(r), openlr.FunctionalRoadClass(1+r.IntN(6))
	place := func(metre float64) openlr.Point {
		latitude, longitude := road.At(metre)
		return openlr.Point{Lon: longitude, Lat: latitude, FRC: class, FOW: openlr.SingleCarriageway}
	}
	at := float64(street%streetsPerRoad) * streetMetres
	first, last, heading := place(at), place(at+streetMetres), road.Heading
	if back {
		first, last, heading = last, first, heading+math.Pi
	}
	first.Bearing = math.Mod(heading*180/math.Pi, 360)
	last.Bearing = math.Mod(first.Bearing+180, 360)
	first.Distance, first.LowestFRC = streetMetres, class
	code, err := openlr.Encode(openlr.Line{Points: []openlr.Point{first, last}})
	if err != nil {
		return "" // only for random coordinates at the edge of the earth
	}
	return code
}

// freeSpeeds in km/h, by the functional road class at the start of a street.
var freeSpeeds = [8]float64{110, 90, 80, 60, 50, 50, 40, 30}

const usualSpeed = 50

func freeSpeed(code string) float64 {
	line, err := openlr.Decode(code)
	if err != nil {
		return usualSpeed
	}
	return freeSpeeds[line.Points[0].FRC%8]
}
