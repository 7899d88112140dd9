package feeds

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestAnIndependentScriptReadsTheSame compares all rows of measured data with those of a Python
// script that was written from the schemas.
func TestAnIndependentScriptReadsTheSame(t *testing.T) {
	python := needs.Program(t, "python3")
	f := func(t *testing.T, format string, text []byte) {
		form, _ := Lookup(format)
		meaning := "begin"
		if form.Defaults.Time == End {
			meaning = "end"
		}
		script := exec.Command(python, filepath.Join("testdata", "datex2.py"), meaning,
			fmt.Sprint(int(form.Defaults.Period.Seconds())), fmt.Sprint(form.Defaults.MinusOne))
		script.Stdin = bytes.NewReader(text)
		out, err := script.Output()
		require.NoError(t, err)
		want := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		r := read(t, format, string(text), nil)
		require.Len(t, r.rows, len(want))
		for i := range r.rows {
			row, span := &r.rows[i], ""
			if !row.To.IsZero() {
				span = row.From.Format(time.RFC3339) + " " + row.To.Format(time.RFC3339)
			}
			got := fmt.Sprintf("%s %d %s %.6g %s %s", row.Site, row.Index, row.Measure, row.Value, row.Outcome, span)
			if row.Measure == Unknown { // the script has no time for it
				got, _, _ = strings.Cut(got, row.Outcome.String())
				got += row.Outcome.String() + " "
			}
			if got != want[i] {
				require.Equal(t, want[i], got, "row %d", i)
			}
		}
	}
	for name, format := range map[string]string{
		"fr-speeds.xml": "bison-fute", "autobahn-measured.xml": "autobahn", "measured-v3.7.xml": "fintraffic", "measured-v3-container.xml": "fintraffic",
	} {
		t.Run(name, func(t *testing.T) { f(t, format, []byte(sample(t, name))) })
	}
	t.Run("whole publication", func(t *testing.T) {
		needs.Everything(t, "a quarter of a minute of Python")
		if document := large(t, "ndw/trafficspeed.xml.gz"); document != nil {
			f(t, "ndw", document)
		}
	})
}
