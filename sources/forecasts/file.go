package forecasts

import (
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
	file   *watch.File
	layer  Layer
	faults *faults
}

func newFileFeed(cfg FileConfig, maxBytes int64, layer Layer, faults *faults) *fileFeed {
	return &fileFeed{FileConfig: cfg, file: watch.NewFile(cfg.Path, cfg.Settle, maxBytes), layer: layer, faults: faults}
}

func (f *fileFeed) changes() <-chan struct{} { return f.file.Changes() }

func (f *fileFeed) close() { f.file.Close() }

// check takes the time of the last modification as what the file vouches for.
// One in the future is the clock of another machine: now is as much as can be said.
func (f *fileFeed) check(context.Context) (confirmed time.Time, err error) {
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
	if err := f.take(content, modified); err != nil {
		err = fmt.Errorf("cannot use %s: %w", f.Path, err)
		f.file.Refuse(err)
		return modified, err
	}
	f.file.Keep()
	return modified, nil
}

func (f *fileFeed) take(content []byte, confirmed time.Time) error {
	format := f.Format
	if format == "" {
		format = FormatOf(f.Path)
	}
	f.faults.restart()
	streets := newStreets(f.faults)
	for record, err := range Read(content, format) {
		if err != nil {
			return err
		}
		streets.add(record)
	}
	return streets.publish(f.layer, confirmed)
}

// streets gathers the good forecasts of whole content, the last of each street.
type streets struct {
	faults *faults
	place  map[identity]int
	all    []*pb.StreetForecast
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
	id := identityOf(r.Forecast)
	if at, ok := s.place[id]; ok {
		s.all[at] = r.Forecast
		return
	}
	s.place[id] = len(s.all)
	s.all = append(s.all, r.Forecast)
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
