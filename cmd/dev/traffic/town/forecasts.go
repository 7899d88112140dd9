package town

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/publish"
	"trafficd/pipeline/lib/replace"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// ForecastConfig describes the forecasts to generate. Each field corresponds to the flag with the
// same name.
type ForecastConfig struct {
	Config
	From    time.Time // start of the first period, in UTC
	Periods int
	Step    time.Duration // length of a period
	Details bool          // add the optional members: lengths, speeds of free traffic, and bounds
}

// DefaultForecastConfig returns the settings for 1,000 streets and six hours. The caller sets From.
func DefaultForecastConfig() ForecastConfig {
	return ForecastConfig{Config: Config{Streets: 1000, Seed: 1}, Periods: 24, Step: 15 * time.Minute}
}

// Validate returns an error for the first invalid setting.
func (c ForecastConfig) Validate() error {
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
	return c.Config.Validate()
}

func (c ForecastConfig) end() time.Time { return c.From.Add(time.Duration(c.Periods) * c.Step) }

// Forecasts returns a forecast for each street of a generated town. The same configuration produces
// the same forecasts.
func Forecasts(cfg ForecastConfig) (iter.Seq[*pb.StreetForecast], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return func(yield func(*pb.StreetForecast) bool) {
		t := NewTown(cfg.Config)
		for i := range t.Streets {
			s := &t.Streets[i]
			f := &pb.StreetForecast{Street: s.Number, Fromnode: s.From, OpenLRcode: s.OpenLR(), Forecast: periods(cfg, t, s)}
			if cfg.Details {
				f.Length, f.FreeFlowSpeed = new(math.Round(s.Length)), new(math.Round(freeSpeeds[s.Class&7]))
				for n, p := range f.Forecast {
					spread := 0.05 + 0.02*float64(n)
					p.SpeedLow, p.SpeedHigh, p.Basis = new(math.Round(p.Speed*(1-spread))), new(math.Round(p.Speed*(1+spread))), new("own")
				}
			}
			if !yield(f) {
				return
			}
		}
	}, nil
}

func periods(cfg ForecastConfig, t *Town, street *Street) []*pb.ForecastPeriod {
	all := make([]*pb.ForecastPeriod, cfg.Periods)
	for i := range all {
		start := cfg.From.Add(time.Duration(i) * cfg.Step)
		speed := t.At(street, start.Add(cfg.Step/2)).Speed
		all[i] = &pb.ForecastPeriod{
			Start: start.Format(time.RFC3339), End: start.Add(cfg.Step).Format(time.RFC3339),
			SpeedValid: proto.Bool(true), Speed: math.Round(10*speed) / 10,
		}
	}
	return all
}

// WriteForecasts writes forecasts as a StreetForecastResponse to a file, which it replaces
// atomically: a daemon may be watching it.
func WriteForecasts(path string, cfg ForecastConfig) error {
	all, err := Forecasts(cfg)
	if err != nil {
		return err
	}
	return replace.File(path, 0o666, func(w io.Writer) error {
		_, err := publish.Write(w, forecasts.FormatProtobuf, all)
		return err
	})
}
