package feed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/cmd/trafficctl/internal/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is everything that a source returned.
type result struct {
	items     []string
	positions []measurement.Position
	bad       []string // rows that cannot be read
	empty     int64
	err       error // that ended the sequence
}

func readAll(t testing.TB, cfg Config, stdin string) (r result) {
	source, err := Open(t.Context(), cfg, strings.NewReader(stdin))
	if err != nil {
		return result{err: err}
	}
	defer func() {
		if err := source.Close(); r.err == nil { // otherwise the same error again
			require.NoError(t, err)
		}
	}()
	for item, err := range source.Items() {
		var bad *measurement.RowError
		switch {
		case errors.As(err, &bad):
			r.bad = append(r.bad, err.Error())
		case err != nil:
			r.err = err
		default:
			r.items = append(r.items, string(item.JSON))
			r.positions = append(r.positions, item.Position)
		}
	}
	r.empty = source.Empty
	return r
}

// readValid reads an input without errors.
func readValid(t testing.TB, cfg Config, stdin string) result {
	t.Helper()
	r := readAll(t, cfg, stdin)
	require.NoError(t, r.err)
	require.Empty(t, r.bad)
	return r
}

// configFor returns a configuration for standard input.
func configFor(format Format, mapping *Mapping) Config {
	cfg := DefaultConfig()
	cfg.Format, cfg.Mapping = format, mapping
	return cfg
}

func writeFile(t testing.TB, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// mapped returns the default mapping with changes.
func mapped(change func(*Mapping)) *Mapping {
	m := DefaultMapping()
	change(&m)
	return &m
}
