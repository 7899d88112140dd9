package forecast

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Config says what to make. Each setting is the flag of that name.
type Config struct {
	Streets int
	From    time.Time // start of the first period
	Periods int
	Step    time.Duration // length of a period
	Seed    uint64
}

// DefaultConfig is six hours ahead for a town. From is for the caller to set.
func DefaultConfig() Config {
	return Config{Streets: 1000, Periods: 24, Step: 15 * time.Minute, Seed: 1}
}

// Validate gives the first setting that cannot be, and why.
func (c Config) Validate() error {
	switch {
	case c.Streets < 1 || c.Streets > 1_000_000_000:
		return fmt.Errorf("--streets %d: from 1 to 1,000,000,000, an identifier has 32 bits", c.Streets)
	case c.Periods < 1 || c.Periods > 10_000:
		return fmt.Errorf("--periods %d: from 1 to 10,000, the daemon takes no more", c.Periods)
	case c.Step < time.Second || c.Step > 24*time.Hour || c.Step%time.Second != 0:
		return fmt.Errorf("--step %s: whole seconds from 1s to 24h", c.Step)
	case c.From.Year() < 1970 || c.end().Year() > 2261:
		return errors.New("--from: the daemon takes the years 1970 to 2261")
	}
	return nil
}

func (c Config) end() time.Time { return c.From.Add(time.Duration(c.Periods) * c.Step) }

// Generate makes the forecasts, one after the other; codes, as many as there
// are streets, are their location references, or nil for a network of its own.
// The same arguments give the same forecasts. Each belongs to the caller.
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

// periods follows the rush hours of UTC days, with noise that lasts.
func periods(cfg Config, r *rand.Rand, free float64) []*pb.ForecastPeriod {
	all := make([]*pb.ForecastPeriod, cfg.Periods)
	burden, noise := 0.2+0.5*r.Float64(), 0.0
	for i := range all {
		start := cfg.From.Add(time.Duration(i) * cfg.Step)
		noise = 0.8*noise + 0.03*r.NormFloat64()
		share := min(1.1, max(0.05, 1-burden*rush(start)+noise))
		all[i] = &pb.ForecastPeriod{
			Start: format(start), End: format(start.Add(cfg.Step)),
			SpeedValid: true, Speed: math.Round(10*free*share) / 10,
		}
	}
	return all
}

func format(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// rush is 0 in a calm hour and about 1 at 8 and at 17 o'clock, less at weekends.
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
