package registry

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestParseCSV(t *testing.T) {
	f := func(body, column string, comma rune, want ...string) {
		t.Helper()
		got, err := collect(func(add addEntry) error { return parseCSV([]byte(body), fields{code: column}, comma, add) })
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	f("code\nA\nB\n", "code", 0, "A", "B")
	f("code\r\nA\r\nB", "code", 0, "A", "B")
	f("code,street\nA,x\n\nB,y\n", "code", 0, "A", "B")
	f("street;code\nx,1;A\n", "code", 0, "A")
	f("street\tcode\nx\tA\n", "code", 0, "A")
	f("street|code\nx|A\n", "code", 0, "A")
	f("street;code\nx;A\n", "code", ';', "A")
	f("a:code\nx:A\n", "code", ':', "A")
	f("\"street, no\",\"code\"\n\"High \"\"St\"\"\nno 5\",\"A,1\"\n", "code", 0, "A,1")
	f(" code , street\n A ,x\n", "code", 0, "A")
	f("code,street\nÅ1,\xd8\n", "code", 0, "Å1") // another column's encoding does not matter
	f("code\n", "code", 0)
	f("code,x\n,1\nA,2\n", "code", 0, "", "A") // NewDetectors leaves out the empty code
}

func TestParseCSVErrors(t *testing.T) {
	f := func(body, column string, want string) {
		t.Helper()
		got, err := collect(func(add addEntry) error { return parseCSV([]byte(body), fields{code: column}, 0, add) })
		require.ErrorContains(t, err, want)
		require.Nil(t, got)
	}
	f("", "code", "empty")
	f("REPORT_ID,street\n1,x\n", "code", `no column "code"; the columns are ["REPORT_ID" "street"]`)
	f("REPORT_ID;street\n1;x\n", "code", `the columns are ["REPORT_ID" "street"]`)
	f("code,code\n1,2\n", "code", "more than once")
	f("code,street\nA,x\nB", "code", "line 3: number of fields 1, in the header 2")
	f("code,street\nA,x\nB,y,z\n", "code", "truncated")
	f("code,street\nA,x\nB,\"y", "code", "quote")
	f("code\n\xd8A\n", "code", "UTF-8")
	f("\"code", "code", "not a CSV header")
}

// TestParseCSVTruncated checks that a truncation within a row is detected unless the code is the
// last column, and that the rows before the truncation are complete.
func TestParseCSVTruncated(t *testing.T) {
	whole := "code,street\nA1,x\nB2,\"y, z\"\nC3,w\n"
	rows := []string{"A1", "B2", "C3"}
	for n := range len(whole) {
		got, err := collect(func(add addEntry) error { return parseCSV([]byte(whole[:n]), fields{code: "code"}, ',', add) })
		atRowEnd := n >= len("code") && (whole[n] == '\n' || whole[n-1] == '\n')
		if err == nil {
			require.Equal(t, rows[:len(got)], append([]string{}, got...), "truncated at byte %d", n)
			continue
		}
		require.False(t, atRowEnd, "truncated at byte %d: %v", n, err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("A\x00B,1\x00C;2\x00\"D\"", uint8(0), uint8(1))
	f.Add("dét 1\x00line\nbreak\x00", uint8(1), uint8(3))
	f.Fuzz(func(t *testing.T, joined string, separator, columns uint8) {
		codes := strings.Split(joined, "\x00")
		separators := []rune{',', ';', '\t', '|'}
		body := encodeCSV(t, codes, separators[separator%4], int(columns%4)+1)
		got, err := collect(func(add addEntry) error { return parseCSV(body, fields{code: "code"}, 0, add) })
		if slices.ContainsFunc(codes, func(c string) bool { return !utf8.ValidString(strings.TrimSpace(c)) }) {
			require.ErrorContains(t, err, "UTF-8")
			return
		}
		require.NoError(t, err)
		require.Len(t, got, len(codes))
		for i, c := range codes { // encoding/csv reads \r\n within quotes as \n
			require.Equal(t, strings.TrimSpace(strings.ReplaceAll(c, "\r\n", "\n")), got[i])
		}
	})
}

// encodeCSV returns a CSV file with codes in the column after the given number of columns. That
// must not be 0, because an empty code would then be an empty line, which is skipped.
func encodeCSV(t *testing.T, codes []string, comma rune, columns int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Comma = comma
	row := func(filler, last string) {
		fields := slices.Repeat([]string{filler}, columns)
		require.NoError(t, w.Write(append(fields, last)))
	}
	row("other", "code")
	for _, c := range codes {
		row("x", c)
	}
	w.Flush()
	return b.Bytes()
}

// TestCSVErrorsAreShort checks that the error about a file that is not CSV does not contain the
// file, because the daemon logs it and keeps it.
func TestCSVErrorsAreShort(t *testing.T) {
	f := func(body string) {
		t.Helper()
		_, err := collect(func(add addEntry) error { return parseCSV([]byte(body), fields{code: "code"}, 0, add) })
		require.Error(t, err)
		require.Less(t, len(err.Error()), 10_000)
	}
	f(strings.Repeat("\x80", 100_000))
	f(strings.Repeat("a,", 100_000))
	f("code\n" + strings.Repeat("\x80", 100_000))
}
