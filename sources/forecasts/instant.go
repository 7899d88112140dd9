package forecasts

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Years that every part of the system can hold (contract 1.2, rule 9).
const (
	firstYear = 1970
	lastYear  = 2261
)

// maxTime is longer than any time with nine digits of fraction and a zone.
const maxTime = 40

// formatTime writes a moment as the layer wants it. All such texts have one
// length, so that they sort as their moments do.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// normaliseTime reads an ISO 8601 date-time with a zone. Seconds may be
// missing, the fraction may follow a comma, T and Z may be small.
func normaliseTime(text string) (string, error) {
	t, err := parseTime(text)
	if err != nil {
		return "", fmt.Errorf("%.64q is no date-time like 2026-11-20T18:15:00Z", text)
	}
	return checkYear(t)
}

func checkYear(t time.Time) (string, error) {
	if year := t.UTC().Year(); year < firstYear || year > lastYear {
		return "", fmt.Errorf("year %d is not from %d to %d", year, firstYear, lastYear)
	}
	return formatTime(t), nil
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
		return t, errors.New("the hour has no two digits") // which time.Parse takes
	}
	t, err = time.Parse(time.RFC3339, text)
	if _, zone := t.Zone(); err == nil && max(zone, -zone) >= 24*60*60 {
		err = errors.New("no zone is a day from UTC") // which time.Parse takes as well
	}
	return t, err
}
