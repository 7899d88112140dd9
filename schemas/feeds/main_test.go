package feeds

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// result is everything that a document contains.
type result struct {
	rows  []Row
	sites []Site
	Summary
}

// parse reads a document. change may change the defaults of the format.
func parse(t testing.TB, format string, in io.Reader, change func(*Options)) (r result, err error) {
	t.Helper()
	f, ok := Lookup(format)
	require.True(t, ok, format)
	o := f.Defaults
	if change != nil {
		change(&o)
	}
	r.Summary, err = f.Parse(in, o, Sink{
		Rows: func(rows []Row) error { r.rows = append(r.rows, rows...); return nil },
		Site: func(s *Site) error { r.sites = append(r.sites, *s); return nil },
	})
	return r, err
}

// read reads a valid document.
func read(t testing.TB, format, text string, change func(*Options)) result {
	t.Helper()
	r, err := parse(t, format, strings.NewReader(text), change)
	require.NoError(t, err)
	require.Equal(t, r.Values, len(r.rows), "every value is a row")
	require.Equal(t, r.Values, r.Of(Measured)+r.Of(NoVehicle)+r.Of(Fault)+r.Of(Skipped))
	require.Equal(t, r.Listed, len(r.sites))
	return r
}

// sample returns a document of testdata.
func sample(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(text)
}

// large returns a document that is too large for the repository, or nil if it is not on this
// machine.
func large(t testing.TB, name string) []byte {
	t.Helper()
	packed, ok := recorded(name)
	if !ok {
		t.Logf("not read: the recorded publication %s is not on this machine", name)
		return nil
	}
	return unpack(t, packed)
}

func recorded(name string) ([]byte, bool) {
	packed, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "feeds", name))
	return packed, err == nil
}

func unpack(t testing.TB, packed []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	return text
}
