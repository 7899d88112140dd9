package forecasts

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// fileFeed reads a file whole. It does so only when nobody has touched it for
// a while, so that one that is being written in place is met whole; renames and
// swapped links are met at once.
type fileFeed struct {
	FileConfig
	maxBytes int64
	layer    Layer
	faults   *faults
	watch    *watch

	used fs.FileInfo // the version in use; nil: none yet
}

func newFileFeed(cfg FileConfig, maxBytes int64, layer Layer, faults *faults) *fileFeed {
	return &fileFeed{FileConfig: cfg, maxBytes: maxBytes, layer: layer, faults: faults, watch: newWatch(cfg.Path)}
}

func (f *fileFeed) changes() <-chan struct{} { return f.watch.poke }

func (f *fileFeed) close() { f.watch.close() }

func (f *fileFeed) check(context.Context) (confirmed time.Time, err error) {
	f.watch.follow() // before looking, so that no change falls between
	before, err := os.Stat(f.Path)
	switch {
	case err != nil:
		return confirmed, err
	case !before.Mode().IsRegular():
		return confirmed, fmt.Errorf("%s is no regular file", f.Path)
	}
	confirmed = modified(before)
	if f.used != nil && sameVersion(f.used, before) {
		f.layer.Confirm(confirmed)
		return confirmed, errUnchanged
	}
	// An age below zero is a clock that went back, or another machine's.
	if age := time.Since(before.ModTime()); age >= 0 && age < f.Settle {
		return confirmed, errUnsettled
	}
	return confirmed, f.swap(before, confirmed)
}

// swap puts the file's content in use, if it is good and nobody wrote meanwhile.
func (f *fileFeed) swap(before fs.FileInfo, confirmed time.Time) error {
	content, err := readFile(f.Path, f.maxBytes)
	if after, gone := os.Stat(f.Path); gone != nil || !sameVersion(before, after) {
		return errUnsettled
	}
	if err == nil {
		err = f.take(content, confirmed)
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", f.Path, err)
	}
	f.used = before
	return nil
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

// modified is the time that the file vouches for. One in the future is the
// clock of another machine: now is as much as can be said.
func modified(info fs.FileInfo) time.Time {
	if now := time.Now(); info.ModTime().After(now) {
		return now
	}
	return info.ModTime()
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
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

// readFile reads all of a file, uncompressed if it is gzip.
func readFile(path string, maxBytes int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := readAtMost(file, maxBytes)
	if err != nil || !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return content, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if content, err = readAtMost(unzipped, maxBytes); err != nil {
		return nil, fmt.Errorf("cannot decompress: %w", err)
	}
	return content, nil
}

var errTooLong = errors.New("longer than forecasts.max_bytes")

func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && int64(len(content)) > maxBytes {
		return nil, errTooLong
	}
	return content, err
}
