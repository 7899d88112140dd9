package feeds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

// TestLocalTimesFollowOneAnother reads every minute of two years as a document of its own, as a
// publisher without offsets writes it. No minute is lost and none occurs twice.
func TestLocalTimesFollowOneAnother(t *testing.T) {
	for _, name := range []string{"Europe/Madrid", "Asia/Hong_Kong", "America/St_Johns", "Australia/Lord_Howe"} {
		zone := location(t, name)
		p := &parser{Options: Options{Zone: zone}}
		for at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2027; at = at.Add(5 * time.Minute) {
			got := p.local("02/01/2006 15:04:05", at.In(zone).Format("02/01/2006 15:04:05"))
			if !got.Equal(at) {
				require.Equal(t, at, got, name)
			}
			p.After = got
		}
	}
}

// TestRepeatedHour checks which hour a local time belongs to when nothing was read before.
func TestRepeatedHour(t *testing.T) {
	f := func(after, modified, want string) {
		t.Helper()
		p := &parser{Options: Options{Zone: location(t, "Europe/Madrid")}}
		p.After, _ = time.Parse(time.RFC3339, after)
		p.Modified, _ = time.Parse(time.RFC3339, modified)
		require.Equal(t, want, p.local(time.DateTime, "2026-10-25 02:30:00").UTC().Format(time.RFC3339))
	}
	f("", "", "2026-10-25T00:30:00Z")
	f("", "2026-10-25T00:31:00Z", "2026-10-25T00:30:00Z")
	f("", "2026-10-25T01:31:00Z", "2026-10-25T01:30:00Z")
	f("2026-10-25T00:25:00Z", "", "2026-10-25T00:30:00Z")
	f("2026-10-25T00:30:00Z", "", "2026-10-25T00:30:00Z") // the same document again
	f("2026-10-25T00:55:00Z", "", "2026-10-25T01:30:00Z")
}

func TestOffsetOfTheDocumentWins(t *testing.T) {
	p := &parser{Options: Options{Zone: location(t, "Europe/Brussels")}}
	// +01:00 in July, as Flanders writes it.
	require.Equal(t, "2026-07-10T15:21:00Z", p.time([]byte("2026-07-10T16:21:00+01:00")).Format(time.RFC3339))
	require.Equal(t, "2026-07-10T14:21:00Z", p.time([]byte("2026-07-10T16:21:00")).Format(time.RFC3339))
}

func TestSkippedHour(t *testing.T) {
	p := &parser{Options: Options{Zone: location(t, "Europe/Madrid")}}
	require.Equal(t, "2026-03-29T01:30:00Z", p.local(time.DateTime, "2026-03-29 02:30:00").UTC().Format(time.RFC3339))
}

func TestNumbers(t *testing.T) {
	f := func(text string, decimal byte, want float64, ok bool) {
		t.Helper()
		got, gotOK := number([]byte(text), decimal)
		require.Equal(t, ok, gotOK, text)
		if ok {
			require.Equal(t, want, got)
		}
	}
	f("0", '.', 0, true)
	f("-1", '.', -1, true)
	f("83.5", '.', 83.5, true)
	f("4,4842054", ',', 4.4842054, true)
	f("0.1", '.', 0.1, true)
	f("123456789012345.678", '.', 123456789012345.678, true)
	f("1e2", '.', 100, true)
	f("+5", '.', 5, true)
	f(".5", '.', 0.5, true)
	f("5.", '.', 5, true)
	for _, text := range []string{"", "-", ".", "1.2.3", "1,5", "NaN", "INF", "0x10", "1_000", "Error", "1 2", "１"} {
		f(text, '.', 0, false)
	}
	f("1.5", ',', 0, false)
}
