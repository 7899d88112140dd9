package watch

import "time"

// ErrorLog decides which errors of a feed are logged. A feed may fail for hours with errors that
// alternate, or that contain a different port each time. The zero value is the state after a
// successful check.
type ErrorLog struct {
	last string // text of the last error logged
	at   time.Time
}

// Allow reports whether to log err: always after a successful check, otherwise if it differs from
// the last error logged, at most once a minute.
func (l *ErrorLog) Allow(err error) bool {
	now, text := time.Now(), err.Error()
	if !l.at.IsZero() && (text == l.last || now.Sub(l.at) < time.Minute) {
		return false
	}
	l.last, l.at = text, now
	return true
}
