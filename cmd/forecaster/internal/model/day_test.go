package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDays checks that the days of zones with unusual changes follow one another, also where a day
// starts at 1:00 (Santiago), starts after an hour that occurs twice (Havana, Beirut), or does not
// exist.
func TestDays(t *testing.T) {
	f := func(zone string, missing int) {
		t.Helper()
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		start := time.Date(1970, 1, 1, 0, 0, 0, 0, location)
		for start.Year() < 2038 {
			next := Day(start, 1)
			require.True(t, next.After(start), "%s after %s", next, start)
			require.True(t, Day(next, -1).Equal(start), "%s before %s", start, next)
			require.True(t, Day(next, 0).Equal(next), next)
			require.True(t, date(next.Add(-time.Second)).Before(date(next)), "%s is the first instant", next)
			l := Learned{Day: start}
			require.Equal(t, 2*SlotsPerDay+next.Hour()*4+next.Minute()/15, l.Slot(next), next)
			l.Day = next
			require.Equal(t, start.Hour()*4+start.Minute()/15, l.Slot(start), start)
			missing -= int(date(next).Sub(date(start))/(24*time.Hour)) - 1
			start = next
		}
		require.Zero(t, missing)
	}
	f("UTC", 0)
	f("Europe/Copenhagen", 0)
	f("America/Santiago", 0)
	f("America/Havana", 0)
	f("Asia/Beirut", 0)
	f("Africa/Cairo", 0)
	f("Pacific/Apia", 1)       // 30 December 2011
	f("Pacific/Kwajalein", 1)  // 21 August 1993
	f("Pacific/Kiritimati", 1) // 31 December 1994
}
