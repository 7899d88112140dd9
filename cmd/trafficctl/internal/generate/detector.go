package generate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// meanOutage is the mean length of an outage, in intervals.
const meanOutage = 6

// detector is one lane of a station and its traffic pattern.
type detector struct {
	code                string
	types               []string
	latitude, longitude float64
	freeSpeed           float64 // km/h
	capacity            float64 // vehicles an hour
	morning, evening    peak
	night               float64 // minimum share of the capacity
	weekend             float64 // share of a working day's peaks
	hasQuality          bool

	rand   *rand.Rand
	noise  float64 // autocorrelated
	silent bool
}

type peak struct{ hour, width, height float64 }

func newDetector(cfg *Config, i int, r *road) detector {
	d := detector{rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i)))}
	lane := i%lanesPerStation + 1
	if lane == 1 {
		r.metre += 300 + d.rand.IntN(700)
	}
	d.code = fmt.Sprintf("R%03d-%05d-%d", r.number, r.metre, lane)
	d.latitude, d.longitude = r.station(r.metre)
	d.types = cfg.Types
	if !cfg.AllTypes {
		kind := i % len(cfg.Types)
		d.types = cfg.Types[kind : kind+1]
	}
	d.freeSpeed = r.freeSpeed * (1 + 0.05*d.rand.NormFloat64())
	d.capacity = 900 + 1100*d.rand.Float64()
	d.morning = peak{hour: 7.5 + 0.5*d.rand.NormFloat64(), width: 1 + 0.5*d.rand.Float64(), height: 0.3 + 0.6*d.rand.Float64()}
	d.evening = peak{hour: 16.5 + 0.7*d.rand.NormFloat64(), width: 1.3 + 0.7*d.rand.Float64(), height: 0.3 + 0.6*d.rand.Float64()}
	d.night = 0.02 + 0.06*d.rand.Float64()
	d.weekend = 0.3 + 0.4*d.rand.Float64()
	d.hasQuality = d.rand.IntN(10) > 0
	return d
}

// state is the traffic in one interval.
type state struct{ speed, flow, occupancy, quality float64 }

// next returns the state of the interval that starts at t. ok is false in an outage. It must be called for
// every interval in order.
func (d *detector) next(t time.Time, gapRate float64) (s state, ok bool) {
	d.noise = 0.9*d.noise + 0.05*d.rand.NormFloat64()
	d.turn(gapRate)
	load := min(1, max(0, d.load(t)*(1+d.noise)))
	s.flow = math.Round(load * d.capacity)
	s.speed = d.freeSpeed * (1 - 0.6*load*load*load) * (1 + 0.03*d.rand.NormFloat64())
	s.speed = max(3, s.speed)
	const vehicleAndLoop = 0.0065 // km
	s.occupancy = min(100, 100*vehicleAndLoop*s.flow/s.speed)
	s.quality = 1 - 0.1*d.rand.Float64()*d.rand.Float64()
	return s, !d.silent
}

// turn starts and ends outages so that gapRate is their share of the time.
func (d *detector) turn(gapRate float64) {
	p := gapRate / (1 - gapRate) / meanOutage
	if d.silent {
		p = 1.0 / meanOutage
	}
	if d.rand.Float64() < p {
		d.silent = !d.silent
	}
}

// load returns the share of the capacity in use at t: a minimum, two peaks and a midday level.
func (d *detector) load(t time.Time) float64 {
	hour := float64(t.Hour()) + float64(t.Minute())/60
	work := 1.0
	if day := t.Weekday(); day == time.Saturday || day == time.Sunday {
		work = d.weekend
	}
	midday := peak{hour: 13, width: 4, height: 0.25}
	return d.night + midday.at(hour) + work*(d.morning.at(hour)+d.evening.at(hour))
}

func (p peak) at(hour float64) float64 {
	x := (hour - p.hour) / p.width
	return p.height * math.Exp(-x*x/2)
}
