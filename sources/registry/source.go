package registry

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/pipeline/lib/watch"
)

// source reads the list of a feed. Only one goroutine calls its methods.
type source interface {
	// read calls add for each entry of the list. The product instance is empty unless the list has
	// a column for it. read returns watch.ErrUnchanged if the list has not changed since keep was
	// called, and watch.ErrUnsettled if it is being written.
	read(ctx context.Context, add addEntry) error
	// keep records that the last list read is in use.
	keep()
	// forget undoes keep: the next read returns the list even if it is the one that was kept.
	forget()
	// changes returns a channel that receives a value when there may be a new list, or nil if the
	// source must be polled.
	changes() <-chan struct{}
	close()
}

// addEntry adds a detector code of a product instance. at is the line of a CSV file, the index in a
// JSON array, or the number of the row from 1. others holds the other columns that are not empty.
// addEntry must not retain it.
type addEntry func(at int, instance, code string, others ...batch.Attribute)

// fields holds the names of the columns of a CSV list, or of the members of JSON objects.
type fields struct {
	code     string
	instance string // empty: the list has one product instance
}

// fileSource is a CSV or JSON file, gzip-compressed or not.
type fileSource struct {
	FileConfig
	instance string // column of the product instance; empty: none
	file     *watch.File
}

func newFileSource(cfg FileConfig, instance string, settle time.Duration, maxBytes int64) *fileSource {
	return &fileSource{FileConfig: cfg, instance: instance, file: watch.NewFile(cfg.Path, settle, maxBytes)}
}

func (s *fileSource) changes() <-chan struct{} { return s.file.Changes() }
func (s *fileSource) keep()                    { s.file.Keep() }
func (s *fileSource) forget()                  { s.file.Forget() }
func (s *fileSource) close()                   { s.file.Close() }

func (s *fileSource) read(_ context.Context, add addEntry) error {
	body, _, err := s.file.Read()
	if err != nil {
		return err
	}
	if err = s.Parse(body, s.instance, add); err != nil {
		err = fmt.Errorf("cannot read %s: %w", s.Path, err)
		s.file.Reject(err)
	}
	return err
}

// Parse parses the content of the file, which must be decompressed and without a byte order mark.
// It calls add for each detector, with its line or, in JSON, its index. instance is empty if
// instanceColumn is empty. others holds the other columns that are not empty. add must not retain
// it.
func (f FileConfig) Parse(body []byte, instanceColumn string, add func(at int, instance, code string, others ...batch.Attribute)) error {
	names := fields{f.Column, instanceColumn}
	if f.format() == FormatJSON {
		return parseJSON(body, names, add)
	}
	return parseCSV(body, names, f.comma(), add)
}

// httpSource polls a registry service for JSON, and sends the ETag of the list in use.
type httpSource struct {
	HTTPConfig
	instance   string // member that contains the product instance
	maxBytes   int64
	client     *http.Client
	last, kept string // ETags of the last list read and of the list in use
}

func newHTTPSource(cfg HTTPConfig, instance string, maxBytes int64) *httpSource {
	// A separate transport allows close to close all connections.
	client := &http.Client{Timeout: cfg.Timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	return &httpSource{HTTPConfig: cfg, instance: instance, maxBytes: maxBytes, client: client}
}

func (s *httpSource) changes() <-chan struct{} { return nil }
func (s *httpSource) keep()                    { s.kept = s.last }
func (s *httpSource) forget()                  { s.kept = "" }
func (s *httpSource) close()                   { s.client.CloseIdleConnections() }

func (s *httpSource) read(ctx context.Context, add addEntry) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "trafficd")
	if s.Authorization != "" {
		request.Header.Set("Authorization", s.Authorization)
	}
	if s.kept != "" {
		request.Header.Set("If-None-Match", s.kept)
	}
	address := settings.Redact(s.URL, settings.Mask)
	response, err := s.client.Do(request)
	if err != nil {
		return settings.RedactURLError(err) // it contains the method and the URL
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && s.kept != "":
		return watch.ErrUnchanged
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: %s", address, response.Status)
	}
	body, err := watch.ReadAll(response.Body, s.maxBytes)
	if err == nil {
		err = parseJSON(body, fields{s.Column, s.instance}, add)
	}
	if err != nil {
		return fmt.Errorf("cannot read the response of %s: %w", address, err)
	}
	s.last = response.Header.Get("ETag")
	return nil
}

// clickHouseSource polls a query whose first column holds the codes.
type clickHouseSource struct {
	dial.Poller
	instance string // column of the product instance
	maxBytes int64
}

func (s *clickHouseSource) changes() <-chan struct{} { return nil }
func (s *clickHouseSource) keep()                    {}
func (s *clickHouseSource) forget()                  {}
func (s *clickHouseSource) close()                   { s.Close() }

// rowBytes is the memory used by an entry of a list, without its text.
const rowBytes = 16

func (s *clickHouseSource) read(ctx context.Context, add addEntry) error {
	return s.Poll(ctx, func(rows driver.Rows) error {
		var code, instance string
		into := []any{&code}
		columns := rows.ColumnTypes()[1:]
		found := s.instance == ""
		for _, column := range columns {
			if column.Name() == s.instance && !found {
				found = true
				into = append(into, &instance)
				continue
			}
			into = append(into, reflect.New(column.ScanType()).Interface())
		}
		if !found {
			return fmt.Errorf("the result has no column %q after the first", s.instance)
		}
		size := int64(0)
		others := make([]batch.Attribute, 0, len(into))
		for n := 1; rows.Next(); n++ {
			if err := rows.Scan(into...); err != nil {
				return fmt.Errorf("the first column and the column of the product instance must hold strings: %w", err)
			}
			code, instance = unpadded(code), unpadded(instance)
			others = others[:0]
			size += int64(rowBytes + len(code) + len(instance))
			for i, column := range columns {
				if text := textAt(into[1+i]); text != "" && column.Name() != s.instance {
					others = append(others, batch.Attribute{Name: column.Name(), Value: text})
					size += int64(len(text))
				}
			}
			if size > s.maxBytes {
				return watch.ErrTooLong
			}
			add(n, instance, code, others...)
		}
		return nil
	})
}

// textAt returns the text of the value that p points to, or "" for NULL.
func textAt(p any) string {
	v := reflect.ValueOf(p).Elem()
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	case *string:
		return unpadded(*value)
	case fmt.Stringer: // on the pointer for big integers
		return value.String()
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Pointer { // an array with NULLs
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = textAt(v.Index(i).Addr().Interface())
		}
		return fmt.Sprint(texts)
	}
	return fmt.Sprint(v.Interface())
}

// unpadded returns a FixedString without its padding.
func unpadded(text string) string { return strings.TrimRight(text, "\x00") }
