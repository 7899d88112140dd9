package feedloop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/watch"
)

// TestDirIsReplaced checks that the periodic checks find a change even if the directory itself was
// replaced, because the operating system continues to watch the renamed directory.
func TestDirIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	path := filepath.Join(dir, "keys.yaml")
	put := func(content string) {
		require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	put("old")
	file := watch.NewFile(path, 0, 1<<20)
	defer file.Close()
	contents := make(chan string, 1000)
	loop := Loop[string]{
		Load: func(context.Context) (string, error) {
			text, _, err := file.Read()
			return string(text), err
		},
		Use:     func(text string) error { contents <- text; return nil },
		Changes: file.Changes(), Interval: 20 * time.Millisecond, Settle: time.Millisecond, Retry: 20 * time.Millisecond,
	}
	stop := loop.Start(t.Context())
	require.Equal(t, "old", <-contents)
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	for i := range 3 {
		put(fmt.Sprint(i))
		for <-contents != fmt.Sprint(i) {
		}
	}
	stop()
}
