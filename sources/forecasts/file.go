package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/watch"
)

// fileFeed reads the whole file whenever it changes.
type fileFeed struct {
	FileConfig
	file     *watch.File
	maxBytes int64
	maxSpeed float64
	guarded  guardedLayer
	faults   *faults
}

func newFileFeed(cfg Config, layer Layer, faults *faults) *fileFeed {
	return &fileFeed{
		FileConfig: cfg.File, file: watch.NewFile(cfg.File.Path, watch.Settle, cfg.MaxBytes),
		maxBytes: cfg.MaxBytes, maxSpeed: cfg.MaxSpeed, guarded: guard(cfg, layer, "the file"), faults: faults,
	}
}

func (f *fileFeed) changes() <-chan struct{} { return f.file.Changes() }

func (f *fileFeed) close() { f.file.Close() }

// check implements feed. It returns the modification time of the file, or the current time if the
// modification time is in the future because another machine's clock is ahead.
func (f *fileFeed) check(ctx context.Context) (confirmed time.Time, err error) {
	content, modified, err := f.file.Read()
	if now := time.Now(); modified.After(now) {
		modified = now
	}
	if errors.Is(err, watch.ErrUnchanged) {
		f.guarded.guard.Reset()
		f.guarded.layer.Confirm(modified)
	}
	if err != nil {
		return modified, err
	}
	if err := f.publish(ctx, content, modified); err != nil {
		err = fmt.Errorf("cannot use %s: %w", f.Path, err)
		if !errors.As(err, new(*feedloop.Refused)) { // suspect content is not rejected, so it is read again
			f.file.Reject(err)
		}
		return modified, err
	}
	f.file.Keep()
	return modified, nil
}

// maxExpansion is the maximum ratio of the memory used by forecasts to max_bytes. Real files expand
// by a factor of 3.
const maxExpansion = 4

func (f *fileFeed) publish(ctx context.Context, content []byte, confirmed time.Time) error {
	f.faults.reset()
	streets := newStreets(f.faults, f.guarded.layer)
	for record, err := range Read(content, cmp.Or(f.Format, FormatOf(f.Path)), f.maxSpeed) {
		err = cmp.Or(err, ctx.Err())
		if err == nil {
			streets.add(record)
		}
		if err == nil && streets.bytes > maxExpansion*f.maxBytes {
			err = fmt.Errorf("the forecasts need more than %d bytes of memory, %d times forecasts.max_bytes: raise forecasts.max_bytes",
				maxExpansion*f.maxBytes, maxExpansion)
		}
		if err != nil {
			streets.layer.Clear()
			return err
		}
	}
	return streets.publish(&f.guarded, confirmed)
}

// streets passes all valid forecasts in a feed to the layer. It passes each one as soon as it is
// decoded, because all decoded forecasts together need several times as much memory as the layer.
// If a street has several forecasts, the last one is used.
type streets struct {
	faults *faults
	layer  Layer
	known  map[identity]struct{}
	newest string // latest start of a period, normalised
	bytes  int64  // approximate memory used by the forecasts
}

func newStreets(faults *faults, layer Layer) *streets {
	layer.Clear()
	return &streets{faults: faults, layer: layer, known: make(map[identity]struct{})}
}

func (s *streets) add(r Record) {
	if r.Err != nil {
		s.faults.skip(r.Position, r.Err)
		return
	}
	id, newest := identityOf(r.Forecast), ""  // before Put takes ownership
	if n := len(r.Forecast.Forecast); n > 0 { // periods are sorted, and normalised times sort chronologically as strings
		newest = r.Forecast.Forecast[n-1].Start
	}
	bytes := streetBytes + int64(len(r.Forecast.OpenLRcode)) + rowBytes*int64(len(r.Forecast.Forecast))
	if err := attempt(func() error { s.layer.Put(r.Forecast); return nil }); err != nil {
		s.faults.skip(r.Position, err)
		return
	}
	s.faults.addRemarks(r.Position, r.Remarks)
	s.bytes, s.newest = s.bytes+bytes, max(s.newest, newest)
	s.known[id] = struct{}{}
}

var errNoValidForecast = errors.New("no valid forecast: the last valid content remains in use")

// publish makes the streets visible. If there are none, or the guard rejects them, it discards them
// and returns an error.
func (s *streets) publish(to *guardedLayer, confirmed time.Time) error {
	err := errNoValidForecast
	if len(s.known) > 0 {
		err = to.admit(s.known, time.Now())
	}
	if err != nil {
		s.layer.Clear()
		return err
	}
	recordsTaken.Add(float64(len(s.known)))
	s.layer.Publish(confirmed)
	return nil
}
