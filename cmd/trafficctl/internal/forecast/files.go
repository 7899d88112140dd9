package forecast

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"trafficd/cmd/trafficctl/internal/feed"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

// MaxBytes is the maximum decompressed size of a file, which is read into memory.
const MaxBytes = 4 << 30

// Content holds the valid forecasts in a file and the number of its faults.
type Content struct {
	Forecasts []*pb.StreetForecast // the last forecast of each street, normalised
	Skipped   int                  // number of invalid records
	Remarks   int                  // number of parts that were omitted or corrected
}

// ReadFile reads forecasts as the daemon does, in a format of package forecasts. Speeds over
// maxSpeed are invalid. It calls note for each invalid or corrected record, and fails only if the
// whole file is invalid or no record is valid.
func ReadFile(ctx context.Context, path, format string, maxSpeed float64, stdin io.Reader, note func(string)) (Content, error) {
	var all Content
	text, err := readFile(ctx, path, stdin)
	if err != nil {
		return all, fmt.Errorf("cannot read %s: %w", path, err)
	}
	index := make(map[string]int) // in all.Forecasts, by key
	for r, err := range forecasts.Read(text, format, maxSpeed) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return all, fmt.Errorf("cannot read %s as %s: %w", path, format, err)
		}
		if r.Err != nil {
			all.Skipped++
			note(fmt.Sprintf("%s skipped: %v", r.Position, r.Err))
			continue
		}
		if r.Remarks.Count > 0 {
			all.Remarks += r.Remarks.Count
			note(fmt.Sprintf("%s: %v", r.Position, r.Remarks.First))
		}
		key := string(forecasts.Key(r.Forecast))
		if i, ok := index[key]; ok {
			all.Forecasts[i] = r.Forecast
			continue
		}
		index[key] = len(all.Forecasts)
		all.Forecasts = append(all.Forecasts, r.Forecast)
	}
	if all.Forecasts == nil {
		return all, fmt.Errorf("cannot use %s: it contains no valid forecast", path)
	}
	return all, nil
}

// FormatOf returns the format that a file name implies, ignoring an extension such as .gz, or
// NDJSON for standard input and output.
func FormatOf(path string) string {
	if path == feed.Stdin {
		return forecasts.FormatNDJSON
	}
	return forecasts.FormatOf(feed.TrimCompression(path))
}

func readFile(ctx context.Context, path string, stdin io.Reader) ([]byte, error) {
	file, err := feed.OpenFile(ctx, path, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("longer than %d bytes", MaxBytes)
	}
	return text, err
}
