package registry

import (
	"context"
	"fmt"
	"time"

	"trafficd/sources/internal/watch"
)

// fileSource is a CSV or JSON file, gzip-compressed or not.
type fileSource struct {
	FileConfig
	file *watch.File
}

func newFileSource(cfg FileConfig, settle time.Duration, maxBytes int64) *fileSource {
	return &fileSource{FileConfig: cfg, file: watch.NewFile(cfg.Path, settle, maxBytes)}
}

func (s *fileSource) changes() <-chan struct{} { return s.file.Changes() }

func (s *fileSource) keep() { s.file.Keep() }

func (s *fileSource) close() { s.file.Close() }

func (s *fileSource) read(context.Context) ([]string, error) {
	body, _, err := s.file.Read()
	if err != nil {
		return nil, err
	}
	var codes []string
	if s.format() == FormatJSON {
		codes, err = parseJSON(body, s.Column)
	} else {
		codes, err = parseCSV(body, s.Column, s.comma())
	}
	if err != nil {
		err = fmt.Errorf("cannot read %s: %w", s.Path, err)
		s.file.Refuse(err)
	}
	return codes, err
}
