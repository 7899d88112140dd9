package model

import "time"

// StartOfDay returns the first instant of a local date: 1:00 where clocks are set forward at
// midnight. If the date does not exist, because a country has moved across the date line, it
// returns the start of the next date. As in time.Date, the day may be outside the usual range.
func StartOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	if date(t).Before(time.Date(y, m, d, 0, 0, 0, 0, time.UTC)) { // there is no midnight
		_, t = t.ZoneBounds()
	}
	return t
}

// Day returns the start of the local day that is n days after the day of t, or of the nearest day
// beyond if there is no such day. Days before and after that of t therefore never equal it.
func Day(t time.Time, n int) time.Time {
	y, m, d := t.Date()
	start := StartOfDay(y, m, d+n, t.Location())
	if n < 0 && date(start).After(time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC)) {
		return StartOfDay(y, m, d+n-1, t.Location())
	}
	return start
}

// date returns midnight UTC of the date of t.
func date(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// Slot returns the index of a time in Detector.Profile, or -1 if the profile does not cover it.
func (l *Learned) Slot(t time.Time) int {
	local := t.In(l.Day.Location())
	days := int(date(local).Sub(date(l.Day)) / (24 * time.Hour))
	if n := days / 2; days == 2*n && (n == 1 || n == -1) && Day(l.Day, n).Equal(Day(local, 0)) {
		days = n // the day between does not exist
	}
	if days < -1 || days > 1 {
		return -1
	}
	return (days+1)*SlotsPerDay + (local.Hour()*60+local.Minute())/15
}
