package journal

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/durable"
)

// inspected is a journal with several segments and a cursor.
func inspected(t *testing.T) (*memFS, [][]byte) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "archive", "forward")
	addTogether(t, j, fs, payload(2, 20), payload(3, 30))
	for i := range 12 {
		add(t, j, payload(uint64(i), 3000+i*100))
	}
	require.NoError(t, j.Cursor("archive").Save(3, []byte("where")))
	frames := readAll(t, j)
	require.NoError(t, j.Close())
	return fs, frames
}

func TestInspect(t *testing.T) {
	fs, frames := inspected(t)
	fs.SetFault(func(op, path string) bool {
		if op != "open" {
			t.Errorf("got %s of %s, want no changes", op, path)
		}
		return false
	})
	for _, look := range []func(string, ...Option) (*Inspection, error){Inspect, Verify} {
		in, err := look("/journal", WithFS(fs))
		require.NoError(t, err)
		require.NoError(t, in.Err())
		next, count := uint64(1), 0
		for _, s := range in.Segments {
			require.Equal(t, next, s.First)
			require.Equal(t, s.Frames, int(s.Last-s.First+1))
			require.EqualValues(t, len(fs.Bytes(filepath.Join("/journal", s.Name))), s.Bytes)
			require.Zero(t, s.TornBytes)
			next, count = s.Last+1, count+s.Frames
		}
		require.Equal(t, len(frames), count)
		require.Equal(t, []durable.CursorInfo{
			{Name: "archive", Seq: 3, Generation: 2, State: []byte("where")},
			{Name: "forward", Seq: 1, Generation: 1, State: []byte{}},
		}, in.Cursors)
	}
	for from := uint64(0); from <= uint64(len(frames))+1; from++ {
		want := max(from, 1)
		for frame, err := range Frames("/journal", from, WithFS(fs)) {
			require.NoError(t, err)
			require.Equal(t, want, frame.Seq)
			require.Equal(t, frames[want-1], frame.Data)
			want++
		}
		require.EqualValues(t, max(len(frames)+1, int(from)), want)
	}
}

func TestInspectReportsDamage(t *testing.T) {
	f := func(name string, segment int, damage func(b []byte) []byte, inspectSees bool, wantTorn int64) {
		t.Helper()
		fs, _ := inspected(t)
		in, err := Inspect("/journal", WithFS(fs))
		require.NoError(t, err)
		segment = (segment + len(in.Segments)) % len(in.Segments)
		wantFrames := int(in.Segments[segment].First) - 1
		if wantTorn > 0 {
			wantFrames = int(in.Segments[segment].Last)
		}
		path := filepath.Join("/journal", in.Segments[segment].Name)
		fs.Put(path, damage(fs.Bytes(path)))

		in, err = Inspect("/journal", WithFS(fs))
		require.NoError(t, err)
		require.Equal(t, inspectSees, in.Err() != nil, "%s: %v", name, in.Err())
		in, err = Verify("/journal", WithFS(fs))
		require.NoError(t, err)
		require.Equal(t, wantTorn == 0, in.Segments[segment].Err != nil, "%s: %v", name, in.Err())
		require.Equal(t, wantTorn, in.Segments[segment].TornBytes, name)

		count, failed := 0, false
		for _, err := range Frames("/journal", 0, WithFS(fs)) {
			if failed = err != nil; !failed {
				count++
			}
		}
		require.Equal(t, wantTorn == 0, failed, name)
		require.Equal(t, wantFrames, count, name)
	}
	flip := func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at] ^= 1; return b } }
	f("payload in a sealed segment", 1, flip(blockBytes+100), false, 0)
	f("torn tail", -1, func(b []byte) []byte { return append(b, "junk that is long enough"...) }, false, 24)
}

func TestInspectVersion(t *testing.T) {
	fs, _ := inspected(t)
	b := fs.Bytes(firstSegment)
	b[8] = 2
	fs.Put(firstSegment, b)
	in, err := Verify("/journal", WithFS(fs))
	require.NoError(t, err)
	var version *VersionError
	require.ErrorAs(t, in.Segments[0].Err, &version)
	require.NoError(t, in.Segments[1].Err)
	_, err = Inspect("/nowhere")
	require.ErrorContains(t, err, "/nowhere")
}
