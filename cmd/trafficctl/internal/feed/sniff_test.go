package feed

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSeparator checks that the separator is found in the first line, as the registry finds it.
func TestSeparator(t *testing.T) {
	f := func(text string, columns ...string) {
		t.Helper()
		cfg := configFor(CSV, nil)
		cfg.Columns = columns
		require.Equal(t, []string{item1, item2}, readValid(t, cfg, text).items)
	}
	for _, separator := range []string{",", ";", "\t", "|"} {
		text := strings.ReplaceAll(csvText, ",", separator)
		f(text)
		f("\ufeffsep=" + separator + "\r\n" + text)
		header, rows, _ := strings.Cut(csvText, "\n")
		f(strings.ReplaceAll(rows, ",", separator), strings.Split(header, ",")...)
	}
	f(strings.ReplaceAll(strings.ReplaceAll(csvText, ",", ";"), "\n", ";\"a,b,c,d,e,f,g\"\n")) // not the one with most cells
}

// TestBlankRows checks that blank rows, as spreadsheets write them, are counted, and that the
// numbers of rows and lines do not change.
func TestBlankRows(t *testing.T) {
	source, err := Open(t.Context(), configFor(CSV, nil),
		strings.NewReader("sep=;\n"+strings.ReplaceAll(strings.Replace(csvText, "\nD2", "\n,,,,,\n,,\n  ,\nD2", 1), ",", ";")+";;;\"x\"y;;\n"))
	require.NoError(t, err)
	defer source.Close()
	var positions []string
	for item, err := range source.Items() {
		if err != nil {
			positions = append(positions, err.Error())
			continue
		}
		positions = append(positions, item.Position.String())
	}
	require.Equal(t, []string{"line 3", "line 7", `line 8: extraneous or missing " in quoted-field`}, positions)
	require.EqualValues(t, 4, source.Blank)
}

func TestTimesTakenAsUTC(t *testing.T) {
	f := func(want int64, zone *time.Location) {
		t.Helper()
		m := DefaultMapping()
		m.Clock.Zone = zone
		source, err := Open(t.Context(), configFor(CSV, &m), strings.NewReader(strings.ReplaceAll(csvText, "55:00Z", "55")))
		require.NoError(t, err)
		defer source.Close()
		for _, err := range source.Items() {
			require.NoError(t, err)
		}
		require.Equal(t, want, source.AsUTC)
	}
	f(2, nil)
	f(0, time.UTC)
	f(0, zone(t, "Europe/Berlin"))
}

func TestLayoutsOfSpreadsheets(t *testing.T) {
	f := func(layout, cell, want string) {
		t.Helper()
		c := Clock{Layout: layout, Overlap: OverlapReject}
		require.NoError(t, c.Validate())
		at, err := c.parse(cell)
		require.NoError(t, err)
		require.Equal(t, want, at.Format(time.RFC3339))
	}
	f("DD.MM.YYYY hh:mm", "01.07.2026 06:05", "2026-07-01T06:05:00Z")
	f("TT.MM.JJJJ hh:mm:ss", "01.07.2026 06:05:07", "2026-07-01T06:05:07Z")
	f("MM/dd/yy HH:mm", "07/01/26 6:05", "2026-07-01T06:05:00Z")
	f("YYYY-MM-DDThh:mm", "2026-07-01T06:05", "2026-07-01T06:05:00Z")
	f("02.01.2006 15:04", "01.07.2026 06:05", "2026-07-01T06:05:00Z")
	require.Error(t, Clock{Layout: "day and hour", Overlap: OverlapReject}.Validate())
}

// TestForeignFiles checks that files of other programs are recognized by their first bytes.
func TestForeignFiles(t *testing.T) {
	f := func(want, text string) {
		t.Helper()
		require.ErrorContains(t, readAll(t, DefaultConfig(), text).err, want)
	}
	const entry = "PK\x03\x04\x14\x00\x00\x00\x08\x00\x00\x00!\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x13\x00\x00\x00"
	f("save the sheet as CSV UTF-8", entry+"[Content_Types].xml")
	f("save the sheet as CSV UTF-8", entry+"mimetypeapplication/vnd.oasis.opendocument.spreadsheet")
	f("save the sheet as CSV UTF-8", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
	f("the input is KMZ", entry+"doc.kml")
	f("ZIP archive", entry+"day.csv")
	f("iconv -f utf-16 -t utf-8", "\xff\xfed\x00e\x00t\x00")
	f("iconv -f utf-16 -t utf-8", "\xfe\xff\x00d\x00e\x00t")
}

func TestSniff(t *testing.T) {
	f := func(text string, check func(table *Table)) {
		t.Helper()
		table, err := Sniff(t.Context(), DefaultConfig(), strings.NewReader(text))
		require.NoError(t, err)
		require.NotNil(t, table.Mapping, table.Guesses)
		require.NoError(t, table.Mapping.Validate())
		require.Empty(t, table.Bad)
		check(table)
	}
	f("\ufeffsep=;\r\nNr;Ort;Beginn;Kfz;v [km/h];Güte\r\n0815;Süd;27.11.2026 08:15;312;47,5;1\r\n;;;;;\r\n4711;Ring;27.11.2026 08:00;1;51;\r\n",
		func(table *Table) {
			m := table.Mapping
			require.Equal(t, ';', table.Separator)
			require.EqualValues(t, 2, table.Blank)
			require.Equal(t, 2, table.Rows)
			require.True(t, table.Local)
			require.Equal(t, []string{"Nr", "Beginn", "", "Güte"}, []string{m.Detector, m.From, m.To, m.Quality})
			require.Equal(t, []Melt{{"Kfz", "flow"}, {"v [km/h]", "speed"}}, m.Melt)
			require.Equal(t, "DD.MM.YYYY hh:mm", m.Clock.Layout)
			require.EqualValues(t, ',', m.Decimal)
			require.Equal(t, 15*time.Minute, m.Interval)
			require.Equal(t, 4, table.Good)
			require.Equal(t, `{"detectorCode":"0815","measureTypeCode":"flow","timestampFrom":"2026-11-27T08:15:00Z","timestampTo":"2026-11-27T08:30:00Z",`+
				`"value":312,"quality":1}`, table.First)
		})
	f(csvText, func(table *Table) {
		require.False(t, table.Local)
		require.Equal(t, DefaultMapping(), *table.Mapping)
		require.Empty(t, table.Guesses)
		require.Equal(t, item1, table.First)
	})
	f("1467000000,1,50\n1467000060,1,51\n", func(table *Table) { // no header
		require.Equal(t, []string{"c1", "c2", "c3"}, table.Columns)
		require.Equal(t, LayoutUnix, table.Mapping.Clock.Layout)
		require.True(t, table.Mapping.Wide) // all columns are numbers
	})
	f("time,D1,D2\n2026-11-27 08:00,1,2\n2026-11-27 08:01,1,2\n", func(table *Table) {
		require.True(t, table.Mapping.Wide)
		require.Equal(t, time.Minute, table.Mapping.Interval)
		require.Equal(t, 4, table.Good)
	})
	f("sensor,at,speed\n1,01/02/2026 08:00,1\n", func(table *Table) {
		require.Equal(t, "DD/MM/YYYY hh:mm", table.Mapping.Clock.Layout)
		require.Contains(t, strings.Join(table.Guesses, "\n"), "could be month/day, --time-layout 'MM/DD/YYYY hh:mm'")
		require.Equal(t, "=speed", table.Mapping.Type)
	})
	f("sensor,at,speed\n1,12/31/2026 08:00,1\n", func(table *Table) {
		require.Equal(t, "MM/DD/YYYY hh:mm", table.Mapping.Clock.Layout)
	})
	table, err := Sniff(t.Context(), DefaultConfig(), strings.NewReader("id;Datum;Uhrzeit;v\n1;27.11.2026;08:00;5\n"))
	require.NoError(t, err)
	require.Contains(t, strings.Join(table.Guesses, "\n"), "no column has times with date and clock")
	_, err = Sniff(t.Context(), DefaultConfig(), strings.NewReader(item1))
	require.ErrorContains(t, err, "--sniff is for CSV")
	_, err = Sniff(t.Context(), DefaultConfig(), strings.NewReader(""))
	require.ErrorContains(t, err, "no rows")
}
