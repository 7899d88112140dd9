package town

import (
	"math"
	"time"
)

// freeSpeeds (km/h) and capacities (vehicles per hour) are indexed by functional road class.
var (
	freeSpeeds = [8]float64{110, 90, 80, 60, 50, 50, 40, 30}
	capacities = [8]float64{3600, 2600, 1900, 1700, 1000, 700, 350, 250}
)

// Traffic is the mean traffic of a street.
type Traffic struct {
	Speed float64 // km/h
	Flow  float64 // vehicles per hour
}

// At returns the traffic on a street at a given time. It depends only on the arguments and the
// town. Measurements and forecasts use the midpoint of their interval.
func (t *Town) At(s *Street, at time.Time) Traffic {
	at = at.Add(time.Duration(t.cfg.UTCOffset * float64(time.Hour))).UTC()
	load := s.load(t.cfg.Seed, at)
	jam := s.jam(t.cfg.Seed, at, load)
	character := 0.92 + 0.16*chance(t.cfg.Seed, s.index, 0, 4)
	dense := 1 - 0.35*load*load*load
	return Traffic{
		Speed: max(3, freeSpeeds[s.Class&7]*character*dense*(1-0.86*jam)*(1+0.06*s.drift(t.cfg.Seed, at))),
		Flow:  load * capacities[s.Class&7] * character * (1 - 0.4*jam),
	}
}

// load returns the fraction of the capacity in use: low at night, with peaks in the rush hours,
// towards the centre in the morning and away from it in the evening. Weekends have lower peaks.
func (s *Street) load(seed uint64, local time.Time) float64 {
	hour := float64(local.Hour()) + float64(local.Minute())/60 + float64(local.Second())/3600
	peak := func(at, width, height float64) float64 {
		return height * math.Exp(-(hour-at)*(hour-at)/(2*width*width))
	}
	work := 1.0
	if day := local.Weekday(); day == time.Saturday || day == time.Sunday {
		work = 0.65
	}
	demand := 0.7 + 0.5*chance(seed, s.index, 0, 5)
	rush := peak(7.8, 1, 0.62)*(1+0.35*s.inward) + peak(16.8, 1.4, 0.62)*(1-0.35*s.inward)
	return min(1, demand*(0.04+peak(13, 4, 0.3)+work*rush))
}

// drift returns a random number from -1 to 1 that changes slowly.
func (s *Street) drift(seed uint64, at time.Time) float64 {
	const every = 7 * 60 // seconds
	slot, part := uint64(at.Unix()/every), float64(at.Unix()%every)/every
	before, after := chance(seed, s.index, slot, 6), chance(seed, s.index, slot+1, 6)
	return 2*(before+(after-before)*part) - 1
}

// jam returns how much a jam slows a street down, from 0 to 1. Jams move along radials and rings,
// against the direction of travel. In rush hours they are longer and affect more roads; some roads
// are always jammed.
func (s *Street) jam(seed uint64, at time.Time, load float64) float64 {
	if s.road == 0 {
		return 0
	}
	const metresPerSecond, apart = 5.0, 4500.0
	distance, direction, lane := apart, -1.0, uint64(0)
	if s.forward {
		direction, lane = 1, 1
	}
	if s.road >= firstRing { // a whole number of jams on a ring
		round := 2 * math.Pi * float64(rings[s.road-firstRing]) * block
		distance = round / max(1, math.Round(round/apart))
	}
	strength := min(1, max(0, 1.6*(chance(seed, uint64(s.road), lane, 7)+load-0.55)))
	start := distance * chance(seed, uint64(s.road), lane, 8)
	fromJam := math.Remainder(s.metre-start+direction*metresPerSecond*float64(at.UnixNano())/1e9, distance)
	return strength * math.Exp(-math.Pow(fromJam/(300+400*load), 4))
}
