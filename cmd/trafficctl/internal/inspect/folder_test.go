package inspect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A daemon may delete segments after the directory was listed. If the newest listed segment is
// missing, the list lacks its successors and must be read again.
func TestOpenSegmentsAfterDeletion(t *testing.T) {
	const first, second, third = "00000000000000000001.seg", "00000000000000000002.seg", "00000000000000000003.seg"
	f := &Folder{dir: t.TempDir()}
	defer f.Close()
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, third), nil, 0o600))
	require.False(t, f.openSegments([]string{first, second}))
	require.True(t, f.openSegments([]string{first, second, third, "kafka.cursor"}))
	require.Len(t, f.segments, 1)
	require.EqualValues(t, 3, f.segments[0].first)
	require.True(t, f.openSegments([]string{"kafka.cursor"}), "a new journal has no segment yet")
}
