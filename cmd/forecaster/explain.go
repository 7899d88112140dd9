package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/streets"
)

func explainCommand(settings load) *cobra.Command {
	var street, node int32
	var horizon int
	var at string
	var details bool
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Print how a forecast was computed",
		Long: `Recompute the forecast of a street, and print for each of its detectors the recent values,
what is usual at that time, how the last hour of the detector and of the network and the
days before change it, and the result with its bounds. What was learned for a day is kept
for a week. The bounds are adapted to the misses of the last two days, which takes seconds
for 10,000 detectors.`,
		Example: `  forecaster explain --street 4711 --horizon 30
  forecaster explain --street 4711 --fromnode 12 --horizon 60 --at 2026-11-01T07:30:00Z`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, _, err := settings()
			if err != nil {
				return conf.Invalid(err)
			}
			origin := time.Now().Add(-c.Forecasts.Grace)
			if at != "" {
				if origin, err = time.Parse(time.RFC3339, at); err != nil {
					return fmt.Errorf("--at %q must be a time such as 2026-11-01T07:30:00Z", at)
				}
			}
			origin = origin.Truncate(c.Model.Interval)
			length := time.Duration(horizon) * time.Minute
			if length < c.Model.Interval || length > config.MaxHorizon {
				return fmt.Errorf("--horizon %d must be from one interval (%s) to %s", horizon, c.Model.Interval, config.MaxHorizon)
			}
			content, err := streets.Read(c.Detectors)
			if err != nil {
				return err
			}
			conn, err := connect(c)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			source := newSource(c, conn, c.ClickHouse.Database)
			l, err := source.Load(cmd.Context(), origin)
			if err != nil {
				return err
			}
			if l.Pool == nil && !l.Until.IsZero() {
				fmt.Fprintf(cmd.OutOrStdout(), "What was learned for %s no longer exists: it is kept for %d days. Without it, the forecast is:\n",
					l.Day.Format(time.DateOnly), archive.KeepDays)
			}
			unit, err := source.Unit(cmd.Context())
			if err != nil {
				return err
			}
			codes, recent, err := source.Recent(cmd.Context(), origin)
			if err != nil {
				return err
			}
			s := model.NewStep(l, origin, codes, recent)
			if l.Pool != nil {
				tracker, err := track(cmd.Context(), source, l, origin)
				if err != nil {
					return fmt.Errorf("cannot adapt the bounds: %w", err)
				}
				tracker.Use(s)
			}
			found := false
			for i := range content.Streets {
				if t := &content.Streets[i]; t.Street == street && (!cmd.Flags().Changed("fromnode") || t.FromNode == node) {
					found = true
					explain(cmd.OutOrStdout(), c, s, t, length, unit, details)
				}
			}
			if !found {
				return fmt.Errorf("no detector in %s belongs to street %d", c.Detectors.Path, street)
			}
			return nil
		},
	}
	cmd.Flags().Int32Var(&street, "street", 0, "number of the street (required)")
	_ = cmd.MarkFlagRequired("street")
	cmd.Flags().Int32Var(&node, "fromnode", 0, "node at which the street starts; default: all such nodes")
	cmd.Flags().IntVar(&horizon, "horizon", 30, "minutes from the origin to the end of the forecast interval")
	cmd.Flags().BoolVar(&details, "details", false, "print each feature of the model with its weight")
	cmd.Flags().StringVar(&at, "at", "", "origin, rounded down to the start of an interval; default: now")
	return cmd
}

func explain(w io.Writer, c *config.Config, s *model.Step, t *streets.Street, horizon time.Duration, unit string, details bool) {
	utc := func(after time.Duration) string { return s.Origin.Add(after).UTC().Format(time.RFC3339) }
	fmt.Fprintf(w, "street %d, fromnode %d: %s to %s, from values until %s\n",
		t.Street, t.FromNode, utc(horizon-s.Interval), utc(horizon), utc(0))
	speeds := make([]float64, len(t.Detectors))
	for i, code := range t.Detectors {
		speeds[i] = math.NaN()
		fmt.Fprintf(w, "\ndetector %s, %.0f m\n", code, t.Lengths[i])
		r := s.Recent(code, c.Forecasts.MaxAge)
		if r == nil {
			fmt.Fprintf(w, "  no forecast: no measurement in the last %s\n", min(c.Forecasts.MaxAge, model.Hour*s.Interval))
			continue
		}
		fmt.Fprint(w, "  last hour ")
		for n := range model.Hour {
			if r.Weights[n] > 0 {
				fmt.Fprintf(w, " %.1f", r.Values[n])
			} else {
				fmt.Fprint(w, " -")
			}
		}
		fmt.Fprintln(w, " "+unit)
		out, detail := make([]model.Forecast, 1), make([]model.Detail, 1)
		s.Forecast(code, r, []model.Target{s.TargetOf(horizon)}, out, detail)
		speeds[i] = explainDetector(w, out[0], detail[0], unit, details)
	}
	if v := s.KMH(t.Speed(speeds)); !math.IsNaN(v) {
		fmt.Fprintf(w, "\nspeed of the street: %.1f km/h, %s\n", v, publication(c.Forecasts, s, horizon, v))
	} else {
		fmt.Fprintln(w, "\nno forecast for the street")
	}
}

// publication says as what a speed is published, or why not: a period has the forecast for its
// middle.
func publication(c config.Forecasts, s *model.Step, horizon time.Duration, speed float64) string {
	list, targets := periods(c, s)
	i := int(s.Origin.Add(horizon-s.Interval).Sub(s.Origin.Truncate(c.Step)) / c.Step)
	if i >= len(list) {
		return "not published: the last period ends at " + list[len(list)-1].End
	}
	period := list[i].Start + " to " + list[i].End
	if targets[i] != s.TargetOf(horizon) {
		minutes := targets[i].Horizon * s.Interval.Minutes()
		return fmt.Sprintf("not published: the period %s has the forecast of --horizon %g", period, minutes)
	}
	return fmt.Sprintf("published as %g for %s", round(c, speed), period)
}

// explainDetector prints a detector's forecast and returns its speed, or NaN without a forecast.
func explainDetector(w io.Writer, f model.Forecast, d model.Detail, unit string, details bool) float64 {
	switch f.Basis {
	case model.None:
		fmt.Fprintln(w, "  no forecast: too little history, and no usable value in the last hour")
		return math.NaN()
	case model.Persist:
		fmt.Fprintf(w, "  too little history: the last value, %.1f %s\n", f.Value, unit)
		return f.Value
	case model.Pooled:
		fmt.Fprintf(w, "  too little history: the profile of all detectors, %.1f, and the mean residual of the last hour, %+.1f %s\n",
			d.Profile, f.Value-d.Profile, unit)
		return f.Value
	}
	for n, g := range model.Groups {
		var sum float64
		var terms strings.Builder
		if n == 0 {
			sum = d.Profile
			fmt.Fprintf(&terms, "    profile: %.2f\n", d.Profile)
		}
		for _, i := range g.Features {
			term := d.Features[i] * d.Weights.Beta[i]
			sum += term
			fmt.Fprintf(&terms, "    %s: %.3f × %.4f = %+.2f\n", model.Features[i], d.Features[i], d.Weights.Beta[i], term)
		}
		fmt.Fprintf(w, "  %-26s %+8.2f\n", g.Name, sum)
		if details {
			fmt.Fprint(w, terms.String())
		}
	}
	fmt.Fprintf(w, "  %-27s %7.2f %s\n", "forecast", f.Value, unit)
	if math.IsNaN(f.Low) {
		fmt.Fprintln(w, "  no bounds are known")
	} else {
		fmt.Fprintf(w, "  8 of 10 values are between %.1f and %.1f %s\n", max(0, f.Low), f.High, unit)
	}
	return f.Value
}
