package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/pipeline/lib/durable"
)

// fullFS is a disk that has no room for a segment while full is set, though a few blocks are left.
type fullFS struct {
	osFS
	full *bool
}

type fullFile struct {
	File
	full *bool
}

func (fs fullFS) Open(path string, flag int) (File, error) {
	f, err := fs.osFS.Open(path, flag)
	return fullFile{f, fs.full}, err
}

func (f fullFile) Reserve(size int64) error {
	if *f.full {
		return unix.ENOSPC
	}
	return f.File.Reserve(size)
}

// TestNoSegmentOnAFullDisk checks that a segment in which no frame would fit is not created, and
// that it does not make a failed journal ready.
func TestNoSegmentOnAFullDisk(t *testing.T) {
	full := false
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	j := mustOpen(t, cfg, fullFS{full: &full})
	add(t, j, sized(int(cfg.SegmentBytes)/2))
	full = true
	e := &durable.Entry{Data: sized(int(cfg.SegmentBytes) * 3 / 4)}
	require.NoError(t, j.Enqueue(e))
	require.ErrorIs(t, e.Wait(), durable.ErrVoided)
	require.ErrorIs(t, j.Ready(""), ErrFailed)
	require.ErrorIs(t, j.Ready(""), unix.ENOSPC)
	require.ErrorIs(t, j.Close(), unix.ENOSPC)
	left, err := filepath.Glob(filepath.Join(cfg.Dir, "*"+tempSuffix))
	require.NoError(t, err)
	require.Empty(t, left, "an unfinished file keeps space that the disk does not have")

	full = false
	j = mustOpen(t, cfg, osFS{})
	add(t, j, sized(int(cfg.SegmentBytes)*3/4))
	require.NoError(t, j.Close())
	_, err = os.Stat(filepath.Join(cfg.Dir, segmentName(2)))
	require.NoError(t, err)
}
