package forecast

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/trafficctl/internal/generate"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Config describes what to generate. Each field corresponds to the flag with the same name.
type Config struct {
	generate.TownConfig
	From    time.Time // start of the first period, in UTC
	Periods int
	Step    time.Duration // length of a period
}

// DefaultConfig returns the settings for 1,000 streets and six hours. The caller sets From.
func DefaultConfig() Config {
	return Config{TownConfig: generate.TownConfig{Streets: 1000, Seed: 1}, Periods: 24, Step: 15 * time.Minute}
}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.Streets < 1 || c.Streets > 10_000_000:
		return fmt.Errorf("--streets %d must be 1 to 10,000,000 (they are kept in memory)", c.Streets)
	case c.Periods < 1 || c.Periods > 10_000:
		return fmt.Errorf("--periods %d must be 1 to 10,000, the daemon's limit", c.Periods)
	case c.Step < time.Second || c.Step > 24*time.Hour || c.Step%time.Second != 0:
		return fmt.Errorf("--step %s must be whole seconds from 1s to 24h", c.Step)
	case c.From.Year() < 1970 || c.end().Year() > 2261:
		return errors.New("--from and the end of the last period must be in the years 1970 to 2261, which the daemon accepts")
	}
	return c.TownConfig.Validate()
}

func (c Config) end() time.Time { return c.From.Add(time.Duration(c.Periods) * c.Step) }

// Generate returns a forecast for each street of a generated town. The same Config produces the
// same forecasts.
func Generate(cfg Config) (iter.Seq[*pb.StreetForecast], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return func(yield func(*pb.StreetForecast) bool) {
		town := generate.NewTown(cfg.TownConfig)
		for i := range town.Streets {
			s := &town.Streets[i]
			f := &pb.StreetForecast{Street: s.Number, Fromnode: s.From, OpenLRcode: s.OpenLR(), Forecast: periods(cfg, town, s)}
			if !yield(f) {
				return
			}
		}
	}, nil
}

func periods(cfg Config, town *generate.Town, street *generate.Street) []*pb.ForecastPeriod {
	all := make([]*pb.ForecastPeriod, cfg.Periods)
	for i := range all {
		start := cfg.From.Add(time.Duration(i) * cfg.Step)
		speed := town.At(street, start.Add(cfg.Step/2)).Speed
		all[i] = &pb.ForecastPeriod{
			Start: start.Format(time.RFC3339), End: start.Add(cfg.Step).Format(time.RFC3339),
			SpeedValid: proto.Bool(true), Speed: math.Round(10*speed) / 10,
		}
	}
	return all
}
