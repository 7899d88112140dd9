package contract

import (
	"fmt"
	"time"
)

// forecastTime is the layout of the start and end of a forecast period: UTC, whole seconds (contract
// 2). Such texts have one length and sort as their times do.
const forecastTime = "2006-01-02T15:04:05Z"

// FormatForecastTime returns t in the form of contract 2, without its fraction of a second.
func FormatForecastTime(t time.Time) string { return t.UTC().Format(forecastTime) }

// ParseForecastTime parses a time in the form of contract 2.
func ParseForecastTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text) // faster than with forecastTime
	if err != nil || len(text) != len(forecastTime) {
		return t, fmt.Errorf("invalid time %.64q: must be like 2026-01-31T12:30:00Z", text)
	}
	return t, nil
}
