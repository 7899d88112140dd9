package xroute

import (
	"errors"
	"reflect"
	"regexp"
	"time"
)

// dateTime is the shape of an xsd:dateTime: day, hour, rest, zone.
var dateTime = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)T(\d\d)(:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d|)$`)

var (
	errTime = errors.New("want a time such as 2026-03-01T12:30:00Z")
	errZone = errors.New("the time zone is more than 14 hours away from UTC")
)

// setTime reads an xsd:dateTime of the years 0001 to 9999. Without a zone it
// is UTC; 24:00:00 is the end of the day.
func setTime(v reflect.Value, text string) error {
	parts := dateTime.FindStringSubmatch(trim(text))
	if parts == nil {
		return errTime
	}
	day, hour, rest, zone := parts[1], parts[2], parts[3], parts[4]
	days := 0
	if hour == "24" {
		days, hour = 1, "00"
	}
	if zone == "" {
		zone = "Z"
	}
	at, err := time.Parse(time.RFC3339Nano, day+"T"+hour+rest+zone)
	if err != nil || days == 1 && at.Truncate(time.Hour) != at {
		return errTime
	}
	if _, offset := at.Zone(); offset > 14*3600 || offset < -14*3600 {
		return errZone
	}
	at = at.AddDate(0, 0, days).UTC()
	if at.Year() < 1 || at.Year() > 9999 {
		return errTime
	}
	v.Set(reflect.ValueOf(at))
	return nil
}

func appendTime(dst []byte, v reflect.Value) []byte {
	return v.Interface().(time.Time).UTC().AppendFormat(dst, time.RFC3339Nano)
}
