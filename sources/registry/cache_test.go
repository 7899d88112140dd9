package registry

import (
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestCachedList restarts a daemon several times and checks that while the feed is unavailable, it
// uses the list of the previous process.
func TestCachedList(t *testing.T) {
	list := tempPath(t, "detectors.csv")
	cfg := testConfig(FeedConfig{ProductInstance: "city/1", File: &FileConfig{Path: list}})
	cfg.CacheDir = tempPath(t, "cache")
	// restart returns a registry that has checked the feed once.
	restart := func() *Registry {
		t.Helper()
		r := New(cfg, zerolog.New(zerolog.NewTestWriter(t)))
		r.Start(t.Context())
		require.Eventually(t, func() bool { return !r.Status()[0].Pending }, time.Minute, time.Millisecond)
		r.Close()
		return r
	}
	require.Nil(t, restart().Snapshot("city/1"), "without a list or a cached list")

	write(t, list, numbered("D", 100))
	first := restart()
	require.Equal(t, 100, first.Snapshot("city/1").Len())
	require.NotEmpty(t, first.Status()[0].LoadedAt)

	require.NoError(t, os.Remove(list))
	unavailable := restart()
	require.Equal(t, 100, unavailable.Snapshot("city/1").Len())
	status := unavailable.Status()[0]
	require.Contains(t, status.Error, "no such file")
	require.Equal(t, first.Status()[0].Version, status.Version)

	write(t, list, numbered("D", 10))
	require.Equal(t, 100, restart().Snapshot("city/1").Len(), "a list that has shrunk since")
	write(t, list, numbered("D", 101))
	grown := restart()
	require.Equal(t, 101, grown.Snapshot("city/1").Len())
	require.NotEqual(t, status.Version, grown.Status()[0].Version)

	cfg.CacheMaxAge = time.Hour
	cached, err := os.ReadDir(cfg.CacheDir)
	require.NoError(t, err)
	require.Len(t, cached, 1)
	path := newCache(cfg, "city/1").path
	old := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	restart() // confirms the list
	require.NoError(t, os.Remove(list))
	require.Equal(t, 101, restart().Snapshot("city/1").Len())
	require.NoError(t, os.Chtimes(path, old, old))
	require.Nil(t, restart().Snapshot("city/1"), "older than cache_max_age")

	require.NoError(t, os.WriteFile(path, []byte(`{"product_instance":"city/1","detectors":["D`), 0o600))
	require.Nil(t, restart().Snapshot("city/1"), "truncated")
	require.NoError(t, os.WriteFile(path, []byte(`{"product_instance":"other","detectors":["D"]}`), 0o600))
	require.Nil(t, restart().Snapshot("city/1"), "of another product instance")
	cfg.CacheMaxAge = 0
	require.NoError(t, os.WriteFile(path, []byte(`{"product_instance":"city/1","detectors":["D"]}`), 0o600))
	require.Nil(t, restart().Snapshot("city/1"), "switched off")
}

// TestListIsCachedAfterFailure checks that a list that could not be saved is saved at a later
// check, and that the feed does not confirm an older cached list in its place.
func TestListIsCachedAfterFailure(t *testing.T) {
	path := tempPath(t, "detectors.csv")
	feed := newTestFeed(t, FeedConfig{File: &FileConfig{Path: path}})
	cached := &feed.onlyList().cache
	cached.path, cached.maxAge = tempPath(t, "list.json"), time.Hour
	f := func(want ...string) {
		t.Helper()
		feed.check(t.Context())
		codes, _, err := cached.load(time.Now())
		require.NoError(t, err)
		require.ElementsMatch(t, want, codes)
	}
	write(t, path, "detectorCode\nA\n")
	f("A")
	obstacle := cached.path + ".new" // the disk is full
	require.NoError(t, os.Mkdir(obstacle, 0o755))
	write(t, path, "detectorCode\nA\nB\n")
	f("A")
	require.Equal(t, []string{"A", "B"}, codesOf(feed.onlyList().current.Load()))
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(cached.path, old, old))
	f("A")
	_, confirmed, err := cached.load(time.Now())
	require.NoError(t, err)
	require.WithinDuration(t, old, confirmed, time.Second)
	require.NoError(t, os.Remove(obstacle))
	f("A", "B")
}

// TestCacheSwitchedOff checks that if no directory for the cache is set, files in the working
// directory are not read as cached lists.
func TestCacheSwitchedOff(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("x.json", []byte(`{"product_instance":"city/1","detectors":["D"]}`), 0o600))
	require.Empty(t, cachedInstances(DefaultConfig()))
}
