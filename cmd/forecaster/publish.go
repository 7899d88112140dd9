package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/internal/streets"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/replace"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

type output interface {
	// Digests returns the digests of the published forecasts by key.
	Digests(ctx context.Context, timeout time.Duration) (map[string]uint64, error)
	// put publishes the changed forecasts and removes the keys in remove. all contains every forecast.
	put(ctx context.Context, all, changed []*pb.StreetForecast, remove []string) error
	Close()
}

func newOutput(o config.Output) (output, error) {
	if o.Feed == forecasts.FeedFile {
		return fileOutput{o.File}, nil
	}
	p, err := newPublisher(o)
	return topicOutput{p}, err
}

func newPublisher(o config.Output) (*publish.Publisher, error) {
	return publish.NewPublisher(o.Kafka, publish.Options{ID: o.TransactionalID, Timeout: transactionTimeout})
}

type topicOutput struct{ *publish.Publisher }

func (t topicOutput) put(ctx context.Context, _, changed []*pb.StreetForecast, remove []string) error {
	return t.Publish(ctx, changed, remove, func(int) {})
}

type fileOutput struct{ config.OutputFile }

// Digests returns a key that no street has, so that the first publication always replaces the file.
func (f fileOutput) Digests(context.Context, time.Duration) (map[string]uint64, error) {
	return map[string]uint64{"": 0}, nil
}

func (f fileOutput) Close() {}

func (f fileOutput) put(_ context.Context, all, _ []*pb.StreetForecast, _ []string) error {
	format := cmp.Or(f.Format, forecasts.FormatOf(f.Path))
	return replace.File(f.Path, 0o644, func(w io.Writer) error {
		if !strings.HasSuffix(strings.ToLower(f.Path), ".gz") {
			_, err := publish.Write(w, format, slices.Values(all))
			return err
		}
		z := gzip.NewWriter(w)
		_, err := publish.Write(z, format, slices.Values(all))
		return errors.Join(err, z.Close())
	})
}

// errNoForecast means that nothing is published: it would remove all streets because the archive is
// empty or not the right one, or because no measurements arrive.
var errNoForecast = errors.New("no street has a forecast, so the published ones remain until their periods end: check whether " +
	"measurements arrive, and clickhouse.database, clickhouse.table, model.product_instance, model.measure and detectors.path")

// round publishes the forecasts for an origin that differ from the published ones.
func (f *forecaster) round(ctx context.Context, origin time.Time) error {
	start := time.Now()
	all, basis, err := f.forecast(ctx, origin)
	if err != nil {
		failures.WithLabelValues("forecast").Inc()
		return err
	}
	for _, b := range model.Bases {
		streetsByBasis.WithLabelValues(string(b)).Set(float64(basis[b]))
	}
	if len(all) == 0 {
		failures.WithLabelValues("forecast").Inc()
		return errNoForecast
	}
	if origin.Sub(f.state.Load().origin) > f.interval() {
		f.sent = nil // another instance may have published in an interval that this one has missed
	}
	if err := f.publish(ctx, origin, all); err != nil {
		f.sent = nil // it is unknown whether the transaction was committed
		if !publish.Fenced(err) {
			failures.WithLabelValues("publish").Inc()
		}
		return err
	}
	if err := f.source.Store(ctx, origin, f.latest.Load().step.Imputed()); err != nil {
		failures.WithLabelValues("health").Inc()
		f.log.Warn().Err(err).Msg("cannot store the imputed values of sick detectors")
	}
	originGauge.Set(float64(origin.Unix()))
	f.state.Update(func(s *status) { s.origin, s.streets, s.invalid = origin, basis, f.content.Invalid })
	metrics.Since(roundSeconds, start)
	f.log.Debug().Time("origin", origin).Int("streets", len(all)).Msg("forecasts published")
	return nil
}

// forecast computes the forecasts for an origin. They depend only on the archive, the learned
// tables and the detectors file.
func (f *forecaster) forecast(ctx context.Context, origin time.Time) (all []*pb.StreetForecast, basis map[model.Basis]int, err error) {
	if err := f.refresh(ctx, origin); err != nil {
		return nil, nil, err
	}
	codes, recent, err := f.source.Recent(ctx, origin)
	if err != nil {
		return nil, nil, err
	}
	start := time.Now()
	defer func() { metrics.Since(stepSeconds, start) }()
	s := model.NewStep(f.learned, origin, codes, recent)
	f.adapt(ctx, s)
	all, basis = build(f.cfg.Forecasts, s, f.content.Streets)
	f.latest.Store(&snapshot{step: s, streets: f.content.Streets, source: f.source})
	return all, basis, nil
}

// periods returns the forecast periods, and a target in the middle of each. The first period
// contains the origin.
func periods(c config.Forecasts, s *model.Step) (list []*pb.ForecastPeriod, targets []model.Target) {
	first := s.Origin.Truncate(c.Step)
	for i := range c.Periods {
		start := first.Add(time.Duration(i) * c.Step)
		list = append(list, &pb.ForecastPeriod{
			Start: start.UTC().Format(time.RFC3339), End: start.Add(c.Step).UTC().Format(time.RFC3339), SpeedValid: new(true),
		})
		middle := start.Add((c.Step - 1) / 2).Truncate(s.Interval)
		targets = append(targets, s.TargetOf(max(middle.Add(s.Interval).Sub(s.Origin), s.Interval)))
	}
	return list, targets
}

// round returns the speed to publish: a multiple of the tolerance, but not 0.
func round(c config.Forecasts, speed float64) float64 {
	return max(math.Round(speed/c.Tolerance), 1) * c.Tolerance
}

// build returns the forecasts of the streets, omitting periods without a forecast. basis counts the
// streets by the worst basis among their detectors' forecasts.
func build(c config.Forecasts, s *model.Step, list []streets.Street) (all []*pb.StreetForecast, basis map[model.Basis]int) {
	times, targets := periods(c, s)
	basis = make(map[model.Basis]int)
	for i := range list {
		street := &list[i]
		detectors := make([][]model.Forecast, len(street.Detectors))
		worst := model.None // no forecast yet
		for d, code := range street.Detectors {
			detectors[d] = make([]model.Forecast, len(targets))
			r := s.Recent(code, c.MaxAge)
			if r == nil {
				detectors[d] = nil
				continue
			}
			s.Forecast(code, r, targets, detectors[d], nil)
			for _, f := range detectors[d] {
				worst = worst.Add(f.Basis)
			}
		}
		basis[worst]++
		if worst == model.None {
			continue
		}
		f := &pb.StreetForecast{Street: street.Street, Fromnode: street.FromNode, OpenLRcode: street.OpenLR}
		if street.Length > 0 {
			f.Length = new(math.Round(street.Length))
		}
		if free := s.KMH(freeFlow(s, street)); free > 0 {
			f.FreeFlowSpeed = new(round(c, free))
		}
		for n, period := range times {
			if p := combine(c, s, street, detectors, n); p != nil {
				p.Start, p.End, p.SpeedValid = period.Start, period.End, period.SpeedValid
				f.Forecast = append(f.Forecast, p)
			}
		}
		all = append(all, f)
	}
	return all, basis
}

// freeFlow returns the speed of free traffic of a street in the unit of the measure, or NaN.
func freeFlow(s *model.Step, street *streets.Street) float64 {
	speeds := slices.Repeat([]float64{math.NaN()}, len(street.Detectors))
	for i, code := range street.Detectors {
		if d := s.Detectors[code]; d != nil && d.FreeFlow > 0 {
			speeds[i] = d.FreeFlow
		}
	}
	return street.Speed(speeds)
}

// combine returns the forecast of a street for a period, without its times, or nil if no detector
// has one. The bounds are those of all detectors together: none, unless each detector with a
// forecast has bounds.
func combine(c config.Forecasts, s *model.Step, street *streets.Street, detectors [][]model.Forecast, n int) *pb.ForecastPeriod {
	speeds, low, high := make([]float64, len(detectors)), make([]float64, len(detectors)), make([]float64, len(detectors))
	worst, bounded := model.None, true
	for d, list := range detectors {
		speeds[d], low[d], high[d] = math.NaN(), math.NaN(), math.NaN()
		if list != nil && list[n].Basis != model.None {
			f := list[n]
			speeds[d], low[d], high[d] = f.Value, f.Low, f.High
			worst, bounded = worst.Add(f.Basis), bounded && !math.IsNaN(f.Low) && !math.IsNaN(f.High)
		}
	}
	speed := s.KMH(street.Speed(speeds))
	if math.IsNaN(speed) {
		return nil
	}
	p := &pb.ForecastPeriod{Speed: round(c, speed), Basis: new(string(worst))}
	if bounded {
		p.SpeedLow, p.SpeedHigh = new(round(c, s.KMH(street.Speed(low)))), new(round(c, s.KMH(street.Speed(high))))
	}
	return p
}

// publish publishes the forecasts whose records have changed, and removes the streets that no
// longer have a forecast. There must be at least one forecast.
func (f *forecaster) publish(ctx context.Context, origin time.Time, all []*pb.StreetForecast) (err error) {
	if f.sent == nil {
		if f.sent, err = f.out.Digests(ctx, time.Minute); err != nil {
			return err
		}
		f.written = origin
	}
	next := make(map[string]uint64, len(all))
	var changed []*pb.StreetForecast
	for _, forecast := range all {
		key := string(forecasts.Key(forecast))
		if next[key] = publish.Digest(forecast); f.sent[key] != next[key] {
			changed = append(changed, forecast)
		}
	}
	var remove []string
	for key := range f.sent {
		if _, ok := next[key]; !ok {
			remove = append(remove, key)
		}
	}
	slices.Sort(remove)
	if len(changed)+len(remove) == 0 && origin.Sub(f.written) >= renewAfter {
		changed = all[:1]
	}
	if len(changed)+len(remove) > 0 {
		if err := f.out.put(ctx, all, changed, remove); err != nil {
			return err
		}
		f.written = origin
	}
	f.sent = next
	published.Add(float64(len(changed)))
	removed.Add(float64(len(remove)))
	return nil
}
