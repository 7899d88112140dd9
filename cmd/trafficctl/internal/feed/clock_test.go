package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func zone(t testing.TB, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func TestClock(t *testing.T) {
	f := func(layout, zoneName string, overlap Overlap, cell, want string) {
		t.Helper()
		c := Clock{Layout: layout, Zone: zone(t, zoneName), Overlap: overlap}
		got, err := c.parse(cell)
		if want == "" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, got.UTC().Format(time.RFC3339Nano))
	}
	const iso, copenhagen = LayoutISO, "Europe/Copenhagen"
	f(iso, "UTC", OverlapReject, "2026-07-01T08:00:00", "2026-07-01T08:00:00Z")
	f(iso, copenhagen, OverlapReject, "2026-07-01T08:00:00", "2026-07-01T06:00:00Z")
	f(iso, copenhagen, OverlapReject, "2026-12-01 08:00", "2026-12-01T07:00:00Z")
	f(iso, copenhagen, OverlapReject, "2026-12-01T08:00:00,25", "2026-12-01T07:00:00.25Z")
	f(iso, copenhagen, OverlapReject, "2026-07-01T08:00:00Z", "2026-07-01T08:00:00Z")
	f(iso, copenhagen, OverlapReject, "2026-07-01T08:00:00+05:30", "2026-07-01T02:30:00Z")
	f(iso, copenhagen, OverlapReject, "2026-07-01T08:00-0300", "2026-07-01T11:00:00Z")
	// The clocks go from 02:00 to 03:00 on 29 March …
	f(iso, copenhagen, OverlapFirst, "2026-03-29T01:59:59", "2026-03-29T00:59:59Z")
	f(iso, copenhagen, OverlapFirst, "2026-03-29T02:00:00", "")
	f(iso, copenhagen, OverlapFirst, "2026-03-29T02:59:59", "")
	f(iso, copenhagen, OverlapFirst, "2026-03-29T03:00:00", "2026-03-29T01:00:00Z")
	// … and from 03:00 back to 02:00 on 25 October.
	f(iso, copenhagen, OverlapReject, "2026-10-25T01:59:59", "2026-10-24T23:59:59Z")
	f(iso, copenhagen, OverlapReject, "2026-10-25T02:30:00", "")
	f(iso, copenhagen, OverlapFirst, "2026-10-25T02:30:00", "2026-10-25T00:30:00Z")
	f(iso, copenhagen, OverlapSecond, "2026-10-25T02:30:00", "2026-10-25T01:30:00Z")
	f(iso, copenhagen, OverlapReject, "2026-10-25T02:30:00+01:00", "2026-10-25T01:30:00Z")
	f(iso, copenhagen, OverlapReject, "2026-10-25T03:00:00", "2026-10-25T02:00:00Z")
	f(LayoutUnix, copenhagen, OverlapReject, "1782892800", "2026-07-01T08:00:00Z")
	f(LayoutUnix, "UTC", OverlapReject, "1782892800.5", "2026-07-01T08:00:00.5Z")
	f(LayoutUnixMillis, "UTC", OverlapReject, "1782892800250", "2026-07-01T08:00:00.25Z")
	f(LayoutUnix, "UTC", OverlapReject, "2026", "1970-01-01T00:33:46Z")
	f(LayoutUnix, "UTC", OverlapReject, "yesterday", "")
	f("02.01.2006 15:04", copenhagen, OverlapReject, "01.07.2026 08:00", "2026-07-01T06:00:00Z")
	f("02.01.2006 15:04", copenhagen, OverlapReject, "07/01/2026 08:00", "")
	f("2006-01-02 15:04 -0700", copenhagen, OverlapReject, "2026-07-01 08:00 +0000", "2026-07-01T08:00:00Z")
}

// TestClockRoundTrip checks that every quarter of an hour of two years, written in local time, is
// parsed to the same instant by one clock, unless the local time is ambiguous.
func TestClockRoundTrip(t *testing.T) {
	for _, name := range []string{"Europe/Copenhagen", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"} {
		loc := zone(t, name)
		first := Clock{Layout: LayoutISO, Zone: loc, Overlap: OverlapFirst}
		second := Clock{Layout: LayoutISO, Zone: loc, Overlap: OverlapSecond}
		strict := Clock{Layout: LayoutISO, Zone: loc, Overlap: OverlapReject}
		for at := time.Date(2010, 12, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2013; at = at.Add(15 * time.Minute) {
			cell := at.In(loc).Format("2006-01-02T15:04:05")
			a, errA := first.parse(cell)
			b, errB := second.parse(cell)
			require.NoError(t, errA)
			require.NoError(t, errB)
			require.True(t, at.Equal(a) || at.Equal(b), "%s %s: %s or %s", name, at, a, b)
			require.False(t, b.Before(a))
			_, err := strict.parse(cell)
			require.Equal(t, a.Equal(b), err == nil, "%s %s", name, cell)
		}
	}
}
