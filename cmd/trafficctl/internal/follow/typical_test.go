package follow

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decodeWeek returns the speeds of all intervals by the definition of the transform.
func decodeWeek(t *testing.T, text string) (kmh [2016]float64) {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, b, 400)
	for i := range kmh {
		for k := range 200 {
			c := float64(int16(binary.BigEndian.Uint16(b[2*k:])))
			if k == 0 {
				c /= math.Sqrt2
			}
			kmh[i] += math.Sqrt(2./2016) * c * math.Cos(math.Pi/2016*(float64(i)+.5)*float64(k))
		}
	}
	return kmh
}

func TestEncodeWeek(t *testing.T) {
	f := func(sharpest float64, kmh func(hour int) float64) {
		t.Helper()
		var w week
		for i := range w {
			w[i] = float32(kmh(i))
		}
		for i, got := range decodeWeek(t, w.encode()) {
			hour, share := i/12, float64(i%12)/12
			want := (1-share)*kmh(hour) + share*kmh((hour+1)%weekHours)
			require.InDelta(t, want, got, sharpest, "interval %d", i)
			require.Positive(t, got)
		}
	}
	f(0.3, func(int) float64 { return 50 })
	f(2, func(hour int) float64 { return 50 - 30*math.Exp(-math.Pow(float64(hour%24)-8, 2)/8) })
	f(20, func(hour int) float64 { // the worst: from free flow to a jam within an hour
		if hour%24 == 8 {
			return 5
		}
		return 120
	})
}

func TestTypical(t *testing.T) {
	all := somewhere(4)
	tiles := writeTiles(t, all[:3], all[3:])
	matches, streets := Usable(all)
	usual := func(street, weekday, hour int) float64 { return float64(20*street + 3*weekday + hour%12) }
	// Street 3 is unknown; street 4 has no speed on Monday.
	response := func(query string) string {
		weekday, hour := 0, 0
		_, _ = fmt.Sscanf(query, "weekday=%d&hour=%d", &weekday, &hour)
		switch weekday {
		case 0:
			return `{"list": "a", "street": [2, 1, 99, 4], "fromnode": [1, 1, 1, 1]}`
		case 7:
			return `{"list": "a", "problem": "not learned", "usual": [null,null,null,null]}`
		}
		last := "null"
		if weekday > 1 {
			last = fmt.Sprint(usual(4, weekday, hour))
		}
		return fmt.Sprintf(`{"list": "a", "usual": [%g, %g, 5, %s]}`, usual(2, weekday, hour), usual(1, weekday, hour), last)
	}
	var log journal
	f := func(dir string, response func(string) string) (int, error) {
		return Typical(dir, tiles, matches, streets, func(query string, r any) error { return json.Unmarshal([]byte(response(query)), r) }, log.print)
	}
	dir := filepath.Join(t.TempDir(), "typical")
	n, err := f(dir, response)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, "weekday 7, where 1 is Monday, gets the mean of the others: not learned\n", log.String())
	rows := map[string][]string{}
	for _, name := range []string{"2/000/864/819.csv", "1/054/204.csv"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			row := strings.Split(strings.TrimSpace(line), ",")
			rows[row[0]] = row[1:]
		}
	}
	require.Len(t, rows, 3)
	for id, street := range map[string]int{"2/864819/0": 1, "2/864819/2": 2, "1/54204/0": 4} {
		kmh := decodeWeek(t, rows[id][2])
		days := [7][]int{{1, 2, 3, 4, 5, 6}, {1}, {2}, {3}, {4}, {5}, {6}} // learned ones that a day of the week consists of
		if street == 4 {
			days[0], days[1] = []int{2, 3, 4, 5, 6}, []int{2, 3, 4, 5, 6}
		}
		for day, learned := range days {
			for _, hour := range []int{3, 8, 21} {
				want := 0.0
				for _, weekday := range learned {
					want += usual(street, weekday, hour) / float64(len(learned))
				}
				require.InDelta(t, want, kmh[day*288+hour*12], 1, "street %d, day %d, %d o'clock", street, day, hour)
			}
		}
	}
	require.Equal(t, []string{"36", "36"}, rows["2/864819/0"][:2])

	_, err = f(dir, response)
	require.ErrorContains(t, err, "it must be a new directory")
	_, err = f(dir, func(query string) string { return strings.Replace(response(query), `"a", "usual"`, `"b", "usual"`, 1) })
	require.ErrorContains(t, err, "the forecaster's streets have changed")
	_, err = f(dir, func(query string) string {
		if query == "weekday=2&hour=7" {
			return strings.Replace(response(query), "{", `{"problem": "cannot read", `, 1)
		}
		return response(query)
	})
	require.ErrorContains(t, err, "the forecaster responded: cannot read")
	_, err = f(dir, func(query string) string {
		return strings.ReplaceAll(response(query), `"usual"`, `"usual": [null,null,null,null], "x"`)
	})
	require.ErrorContains(t, err, "no street of the matches has typical speeds")
	_, err = Typical(dir, tiles, matches, streets, func(string, any) error { return errors.New("away") }, log.print)
	require.EqualError(t, err, "away")
}
