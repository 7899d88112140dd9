package feeds

import "time"

// Meaning is which instant of the measuring interval a timestamp is.
type Meaning uint8

// The meanings. Unstated is that of Options, where it is the same as Begin.
const (
	Unstated Meaning = iota
	Begin
	End
	Middle
)

// stamp is a time as published: an instant with a meaning, or an interval.
type stamp struct {
	at, from, to time.Time
	meaning      Meaning
	stated       bool // there is a time, although it may be unreadable
}

// interval returns the measuring interval. ok is false if the time is missing or cannot be read.
func (p *parser) interval(s stamp, period time.Duration) (from, to time.Time, ok bool) {
	switch {
	case !s.from.IsZero() && !s.to.IsZero():
		return s.from, s.to, true
	case !s.from.IsZero():
		return s.from, s.from.Add(period), true
	case !s.to.IsZero():
		return s.to.Add(-period), s.to, true
	case s.at.IsZero():
		return from, to, false
	}
	meaning := s.meaning
	if meaning == Unstated {
		meaning = p.Time
	}
	switch from = s.at; meaning {
	case End:
		from = from.Add(-period)
	case Middle:
		from = from.Add(-period / 2)
	}
	return from, from.Add(period), true
}

// parsed is the last timestamp that was read: most are equal to the one before.
type parsed struct {
	text string
	time time.Time
}

// time reads a date-time of XML. The offset in the text is applied as written. Without one, it is a
// local time of Zone. It returns the zero time if the text is not a date-time, or if its zone is
// not known.
func (p *parser) time(text []byte) time.Time {
	if string(text) == p.last.text {
		return p.last.time
	}
	if len(text) > 64 {
		return time.Time{}
	}
	s := string(text)
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if at = p.local("2006-01-02T15:04:05", s); at.IsZero() {
			at = p.local(time.DateTime, s)
		}
	}
	p.last = parsed{s, at.UTC()}
	return p.last.time
}

// local reads a local time of Zone. It returns the zero time if that is not possible.
func (p *parser) local(layout, text string) time.Time {
	wall, err := time.Parse(layout, text)
	if err != nil || p.Zone == nil {
		return time.Time{}
	}
	return p.resolve(wall)
}

// resolve returns the instant of a local time, which is passed as if it were UTC. A time that
// occurs twice when daylight saving time ends is the first instant that is not before After, so
// that the documents of both hours follow one another. Without a previous document, it is the
// instant that is nearer to Modified. A time that is skipped when daylight saving time begins is
// read with the offset before, because the clock that wrote it had not been changed yet.
func (p *parser) resolve(wall time.Time) time.Time {
	first, second := Instants(wall, p.Zone)
	switch {
	case first.Equal(second):
	case !p.After.IsZero() && first.Before(p.After):
		return second
	case p.After.IsZero() && !p.Modified.IsZero() && p.Modified.Sub(first).Abs() > p.Modified.Sub(second).Abs():
		return second
	}
	return first
}

// Instants returns the instants at which clocks in the zone show wall, which is passed as if it
// were UTC. There are two when daylight saving time ends, otherwise they are equal. For a time that
// is skipped when daylight saving time begins, it is the instant according to the offset before.
func Instants(wall time.Time, zone *time.Location) (first, second time.Time) {
	const day = 24 * time.Hour
	first, second = shift(wall, zone, -day), shift(wall, zone, day)
	switch shown := func(at time.Time) bool {
		_, offset := at.In(zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).Equal(wall)
	}; {
	case !shown(second):
		return first, first
	case !shown(first):
		return second, second
	}
	return first, second
}

// shift returns the instant of wall according to the offset that is in force at wall+when.
func shift(wall time.Time, zone *time.Location, when time.Duration) time.Time {
	_, offset := wall.Add(when).In(zone).Zone()
	return wall.Add(-time.Duration(offset) * time.Second)
}
