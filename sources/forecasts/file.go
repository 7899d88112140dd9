package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// fileFeed takes the whole content of a file at a time.
type fileFeed struct {
	FileConfig
	file     *watch.File
	maxBytes int64
	layer    Layer
	faults   *faults
}

func newFileFeed(cfg FileConfig, maxBytes int64, layer Layer, faults *faults) *fileFeed {
	return &fileFeed{FileConfig: cfg, file: watch.NewFile(cfg.Path, cfg.Settle, maxBytes), maxBytes: maxBytes, layer: layer, faults: faults}
}

func (f *fileFeed) changes() <-chan struct{} { return f.file.Changes() }

func (f *fileFeed) close() { f.file.Close() }

// check takes the time of the last modification as what the file vouches for.
// One in the future is the clock of another machine: now is as much as can be said.
func (f *fileFeed) check(ctx context.Context) (confirmed time.Time, err error) {
	content, modified, err := f.file.Read()
	if now := time.Now(); modified.After(now) {
		modified = now
	}
	if errors.Is(err, watch.ErrUnchanged) {
		f.layer.Confirm(modified)
	}
	if err != nil {
		return modified, err
	}
	if err := f.take(ctx, content, modified); err != nil {
		err = fmt.Errorf("cannot use %s: %w", f.Path, err)
		f.file.Refuse(err)
		return modified, err
	}
	f.file.Keep()
	return modified, nil
}

// spread is by how much more memory forecasts may take than the file that holds
// them. Those of real streets take three times as much.
const spread = 4

func (f *fileFeed) take(ctx context.Context, content []byte, confirmed time.Time) error {
	format := f.Format
	if format == "" {
		format = FormatOf(f.Path)
	}
	f.faults.restart()
	streets := newStreets(f.faults)
	for record, err := range Read(content, format) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		streets.add(record)
		if streets.bytes > spread*f.maxBytes {
			return fmt.Errorf("its forecasts take more than %d bytes of memory: raise forecasts.max_bytes, a %dth of that", spread*f.maxBytes, spread)
		}
	}
	return streets.publish(f.layer, confirmed)
}

// streets gathers the good forecasts of whole content, the last of each street.
type streets struct {
	faults *faults
	place  map[identity]int
	all    []*pb.StreetForecast
	bytes  int64 // of memory, about
}

func newStreets(faults *faults) *streets {
	return &streets{faults: faults, place: make(map[identity]int)}
}

func (s *streets) add(r Record) {
	if r.Err != nil {
		s.faults.skip(r.Position, r.Err)
		return
	}
	s.faults.remark(r.Position, r.Remarks)
	s.bytes += memoryOf(r.Forecast)
	id := identityOf(r.Forecast)
	if at, ok := s.place[id]; ok {
		s.bytes -= memoryOf(s.all[at])
		s.all[at] = r.Forecast
		return
	}
	s.place[id] = len(s.all)
	s.all = append(s.all, r.Forecast)
}

// memoryOf is about what a street takes.
func memoryOf(f *pb.StreetForecast) int64 {
	return streetBytes + int64(len(f.OpenLRcode)) + rowBytes*int64(len(f.Forecast))
}

var errNothingGood = errors.New("there is not one good forecast in it: that is never taken")

func (s *streets) publish(layer Layer, confirmed time.Time) error {
	if len(s.all) == 0 {
		return errNothingGood
	}
	recordsTaken.Add(len(s.all))
	layer.Replace(s.all)
	layer.Publish(confirmed)
	return nil
}
