package contract

import (
	"fmt"
	"time"
)

// forecastTime is the layout of the start and end of a forecast period: UTC, whole seconds
// (contract 2). All formatted times have the same length, and their lexical order is chronological.
const forecastTime = "2006-01-02T15:04:05Z"

// FormatForecastTime formats t as contract 2 requires, truncated to whole seconds.
func FormatForecastTime(t time.Time) string { return t.UTC().Format(forecastTime) }

// ParseForecastTime parses a time formatted by FormatForecastTime.
func ParseForecastTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text) // faster than with forecastTime
	if err != nil || len(text) != len(forecastTime) {
		return t, fmt.Errorf("invalid time %q: must have the form 2026-01-31T12:30:00Z", Echo(text))
	}
	return t, nil
}
