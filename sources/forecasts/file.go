package forecasts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/shrink"
	"trafficd/sources/internal/watch"
)

// fileFeed reads a file whole whenever it changes.
type fileFeed struct {
	FileConfig
	file     *watch.File
	maxBytes int64
	maxSpeed float64
	contents contents
	faults   *faults
}

func newFileFeed(cfg Config, layer Layer, faults *faults) *fileFeed {
	return &fileFeed{
		FileConfig: cfg.File, file: watch.NewFile(cfg.File.Path, cfg.File.Settle, cfg.MaxBytes),
		maxBytes: cfg.MaxBytes, maxSpeed: cfg.MaxSpeed, contents: newContents(cfg, layer, "the file"), faults: faults,
	}
}

func (f *fileFeed) changes() <-chan struct{} { return f.file.Changes() }

func (f *fileFeed) close() { f.file.Close() }

// check confirms the data as of the file's modification time, or of now if that is in the future,
// because another machine's clock is ahead.
func (f *fileFeed) check(ctx context.Context) (confirmed time.Time, err error) {
	content, modified, err := f.file.Read()
	if now := time.Now(); modified.After(now) {
		modified = now
	}
	if errors.Is(err, watch.ErrUnchanged) {
		f.contents.guard.Calm()
		f.contents.layer.Confirm(modified)
	}
	if err != nil {
		return modified, err
	}
	if err := f.publish(ctx, content, modified); err != nil {
		err = fmt.Errorf("cannot use %s: %w", f.Path, err)
		var suspect *shrink.Error
		if !errors.As(err, &suspect) { // which is read again
			f.file.Refuse(err)
		}
		return modified, err
	}
	f.file.Keep()
	return modified, nil
}

// expansion is the ratio of memory to file size up to which forecasts are accepted. Real ones need
// three times the size of their file.
const expansion = 4

func (f *fileFeed) publish(ctx context.Context, content []byte, confirmed time.Time) error {
	f.faults.reset()
	streets := newStreets(f.faults)
	for record, err := range Read(content, cmp.Or(f.Format, FormatOf(f.Path)), f.maxSpeed) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		streets.add(record)
		if streets.bytes > expansion*f.maxBytes {
			return fmt.Errorf("the forecasts take more than %d bytes of memory, %d times forecasts.max_bytes: raise it",
				expansion*f.maxBytes, expansion)
		}
	}
	return streets.publish(&f.contents, confirmed)
}

// streets collects the valid forecasts of a feed's whole content, the last one of each street.
type streets struct {
	faults *faults
	index  map[identity]int
	all    []*pb.StreetForecast
	bytes  int64 // approximate memory
}

func newStreets(faults *faults) *streets {
	return &streets{faults: faults, index: make(map[identity]int)}
}

func (s *streets) add(r Record) {
	if r.Err != nil {
		s.faults.skip(r.Position, r.Err)
		return
	}
	s.faults.remark(r.Position, r.Remarks)
	s.bytes += memoryOf(r.Forecast)
	id := identityOf(r.Forecast)
	if at, ok := s.index[id]; ok {
		s.bytes -= memoryOf(s.all[at])
		s.all[at] = r.Forecast
		return
	}
	s.index[id] = len(s.all)
	s.all = append(s.all, r.Forecast)
}

// memoryOf returns the approximate memory of a street.
func memoryOf(f *pb.StreetForecast) int64 {
	return streetBytes + int64(len(f.OpenLRcode)) + rowBytes*int64(len(f.Forecast))
}

// newestStart returns the latest start of a period: the time of data that has no other.
func (s *streets) newestStart() time.Time {
	newest := ""
	for _, f := range s.all {
		if n := len(f.Forecast); n > 0 { // periods are sorted, and the text of normal times too
			newest = max(newest, f.Forecast[n-1].Start)
		}
	}
	at, _ := contract.ParseForecastTime(newest) // normalised
	return at
}

var errNoValidForecast = errors.New("no valid forecast: the last valid content remains in use")

func (s *streets) publish(to *contents, confirmed time.Time) error {
	if len(s.all) == 0 {
		return errNoValidForecast
	}
	if err := to.replace(s.all, time.Now()); err != nil {
		return err
	}
	recordsTaken.Add(float64(len(s.all)))
	to.layer.Publish(confirmed)
	return nil
}
