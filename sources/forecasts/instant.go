package forecasts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"trafficd/schemas/contract"
)

// The range of years that every part of the system can represent (contract 1.2, rule 9).
const (
	firstYear = 1970
	lastYear  = 2261
)

// maxTime is the maximum length of a time in bytes, enough for nine fractional digits and a zone.
const maxTime = 40

// normaliseTime converts an ISO 8601 date-time with a zone to the form of contract 2. Seconds are
// optional, the decimal separator may be a comma, and T and Z may be lower case.
func normaliseTime(text string) (string, error) {
	t, err := parseTime(text)
	if err != nil {
		return "", fmt.Errorf("%.64q is not a date-time like 2026-11-20T18:15:00Z", text)
	}
	return formatTime(t)
}

func formatTime(t time.Time) (string, error) {
	if year := t.UTC().Year(); year < firstYear || year > lastYear {
		return "", fmt.Errorf("year %d is not between %d and %d", year, firstYear, lastYear)
	}
	return contract.FormatForecastTime(t), nil
}

func parseTime(text string) (t time.Time, err error) {
	if len(text) > maxTime {
		return t, fmt.Errorf("longer than %d bytes", maxTime)
	}
	text = strings.Replace(strings.ToUpper(text), ",", ".", 1)
	const minutes = len("2006-01-02T15:04")
	if len(text) > minutes && strings.IndexByte("Z+-", text[minutes]) >= 0 {
		text = text[:minutes] + ":00" + text[minutes:]
	}
	if len(text) <= minutes || text[minutes-3] != ':' || text[minutes] != ':' {
		return t, errors.New("the hour must have two digits") // time.Parse accepts one
	}
	t, err = time.Parse(time.RFC3339, text)
	if _, zone := t.Zone(); err == nil && max(zone, -zone) >= 24*60*60 {
		err = errors.New("the zone must be within a day of UTC") // time.Parse accepts more
	}
	return t, err
}
