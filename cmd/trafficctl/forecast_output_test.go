package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForecastOutputIsAtomic checks that a failed run leaves the existing file unchanged and
// creates no other file.
func TestForecastOutputIsAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.pb")
	require.NoError(t, os.WriteFile(path, []byte("before"), 0o640))
	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "{}\n", want, append([]string{"forecast"}, append(args, "--output", path)...)...)
		require.Equal(t, "before", textOf(t, path))
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.Equal(t, []string{path}, left)
	}
	f("must be protobuf, json or ndjson", "generate", "--format", "xml")
	f("it contains no valid forecast", "build", "-", "--input-format", "ndjson")

	requireSuccess(t, "", "forecast", "generate", "--streets", "3", "--output", path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	require.Zero(t, runWith(t, "", "forecast", "build", path, "--output", path).code, "input and output may be the same file")
	require.Len(t, decoded(t, runWith(t, "", "forecast", "build", path).out).StreetForecast, 3)
}

// TestForecastOutputSymlink checks that an output file that is a symbolic link remains one.
func TestForecastOutputSymlink(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link.json.gz"), filepath.Join(dir, "target.json.gz")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink("target.json.gz", link))
	requireSuccess(t, "", "forecast", "generate", "--streets", "3", "--output", link)
	to, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, "target.json.gz", to)
	require.Len(t, decoded(t, runWith(t, "", "forecast", "build", link).out).StreetForecast, 3)
}

func TestForecastOutputFails(t *testing.T) {
	f := func(output, want string) {
		t.Helper()
		r := requireFailure(t, "", "cannot write forecasts to "+output, "forecast", "generate", "--streets", "1000", "--output", output)
		require.Contains(t, r.err, want)
	}
	f(filepath.Join(t.TempDir(), "missing", "f.pb"), "no such file")
	f(t.TempDir(), "is a directory")
	f("/dev/full", "no space left")
}

// TestForecastInterrupted checks that an interrupt ends a run that would take hours.
func TestForecastInterrupted(t *testing.T) {
	path := temporary(t, "f.pb")
	f := func(want string, atOnce bool, args ...string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		if atOnce {
			interrupt()
		}
		var errs bytes.Buffer
		require.Equal(t, exitFailed, run(ctx, append([]string{"forecast", "generate", "--streets", "100000", "--periods", "10000"}, args...),
			streams{out: &interrupting{then: interrupt}, err: &errs}))
		require.Contains(t, errs.String(), want)
		require.Contains(t, errs.String(), "context canceled")
		require.NoFileExists(t, path)
		require.NoFileExists(t, path+".new")
	}
	f("cannot write forecasts to -", false)
	f("cannot write forecasts to "+path, true, "--output", path)
	input := temporary(t, "in.ndjson")
	require.NoError(t, os.WriteFile(input, bytes.Repeat([]byte(`{"street":1}`+"\n"), 10), 0o600))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, err := readForecasts(ctx, streams{err: io.Discard}, input, "", 500)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "cannot read "+input)
}

// interrupting calls a function at the first write.
type interrupting struct{ then func() }

func (i *interrupting) Write(b []byte) (int, error) {
	i.then()
	return len(b), nil
}

// TestForecastCompressedNames checks that the format of a compressed file follows from its name
// without the extension of the compression, for reading and for writing.
func TestForecastCompressedNames(t *testing.T) {
	for _, name := range []string{"f.ndjson.gz", "f.ndjson.zst", "f.json.zst", "f.pb.zst"} {
		path := temporary(t, name)
		format := map[string]string{"ndjson": "ndjson", "json": "json", "pb": "protobuf"}[strings.Split(name, ".")[1]]
		r := requireSuccess(t, "", "forecast", "generate", "--streets", "3", "--output", path)
		require.Contains(t, r.err, "wrote the forecasts of 3 streets as "+format)
		requireSuccess(t, "", "forecast", "build", path)
	}
}
