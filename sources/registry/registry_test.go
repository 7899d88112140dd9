package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/gunzip/compress"
)

func start(t *testing.T, cfg Config) *Registry {
	t.Helper()
	r := New(cfg, zerolog.New(zerolog.NewTestWriter(t)))
	r.Start(t.Context())
	t.Cleanup(r.Close)
	return r
}

// waitForCodes waits until the codes of the product instance city are want.
func waitForCodes(t *testing.T, r *Registry, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Equal(want, codesOf(r.Snapshot("city"))) },
		time.Minute, 5*time.Millisecond, "want %q", want)
}

// TestFileIsWatched changes a file in each of the ways that editors, deployments and exports use.
// The periodic check is too slow to notice the change.
func TestFileIsWatched(t *testing.T) {
	t.Parallel()
	f := func(name string, first string, change func(t *testing.T, dir string)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, version := range []string{"v1", "v2"} {
				require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
			}
			write(t, filepath.Join(dir, "v1", "list.csv"), "detectorCode\nA\nB\n")
			write(t, filepath.Join(dir, "v2", "list.csv"), "detectorCode\nA\nC\n")
			if first != "" {
				require.NoError(t, os.Symlink(first, filepath.Join(dir, "current")))
			} else {
				require.NoError(t, os.CopyFS(filepath.Join(dir, "current"), os.DirFS(filepath.Join(dir, "v1"))))
			}
			r := start(t, testConfig(FeedConfig{ProductInstance: "city", File: &FileConfig{Path: filepath.Join(dir, "current", "list.csv")}}))
			waitForCodes(t, r, "A", "B")
			change(t, dir)
			waitForCodes(t, r, "A", "C")
		})
	}
	f("rename", "", func(t *testing.T, dir string) {
		require.NoError(t, os.Rename(filepath.Join(dir, "v2", "list.csv"), filepath.Join(dir, "current", "list.csv")))
	})
	f("written in place", "", func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "current", "list.csv"), []byte("detectorCode\nA\nC\n"), 0o644))
	})
	f("removed and created again", "", func(t *testing.T, dir string) {
		path := filepath.Join(dir, "current", "list.csv")
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.WriteFile(path, []byte("detectorCode\nA\nC\n"), 0o644))
	})
	f("symlink to the directory replaced", "v1", func(t *testing.T, dir string) {
		require.NoError(t, os.Symlink("v2", filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
	})
	f("file in a symlinked directory replaced", "v1", func(t *testing.T, dir string) {
		require.NoError(t, os.Rename(filepath.Join(dir, "v2", "list.csv"), filepath.Join(dir, "v1", "list.csv")))
	})
	f("symlink to the file replaced as by Kubernetes", "v1", func(t *testing.T, dir string) {
		require.NoError(t, os.Symlink("../v2/list.csv", filepath.Join(dir, "v1", "new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "v1", "new"), filepath.Join(dir, "v1", "list.csv")))
	})
	f("symlink replaced repeatedly", "v1", func(t *testing.T, dir string) {
		for _, version := range []string{"v2", "v1", "v2"} {
			require.NoError(t, os.Symlink(version, filepath.Join(dir, "next")))
			require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
		}
	})
}

// TestFileCreatedLater checks that the daemon may start before its list exists.
func TestFileCreatedLater(t *testing.T) {
	path := tempPath(t, "list.json.gz")
	r := start(t, testConfig(FeedConfig{ProductInstance: "city", File: &FileConfig{Path: path}}))
	require.Eventually(t, func() bool { return r.Status()[0].Pending == false }, time.Minute, time.Millisecond)
	require.Contains(t, r.Status()[0].Error, "no such file")
	require.Nil(t, r.Snapshot("city"))
	require.Nil(t, r.Snapshot("elsewhere"))
	require.True(t, r.HasFeed("city"))
	require.False(t, r.HasFeed("elsewhere"))
	require.NoError(t, os.WriteFile(path, compress.Gzip(`{"detectors":[{"detectorCode":"A"}]}`), 0o644))
	waitForCodes(t, r, "A")
}

// TestSnapshotIsConsistent alternates between two disjoint lists while readers run, and checks that
// no reader sees codes of both lists (promise 7).
func TestSnapshotIsConsistent(t *testing.T) {
	t.Parallel()
	const n = 500
	path := tempPath(t, "list.csv")
	cfg := testConfig(FeedConfig{ProductInstance: "city", File: &FileConfig{Path: path}})
	cfg.MaxShrink = 1
	write(t, path, numbered("A", n))
	r := start(t, cfg)
	require.Eventually(t, func() bool { return r.Snapshot("city") != nil }, time.Minute, time.Millisecond)

	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					set := r.Snapshot("city")
					if first := set.Code(0)[0]; set.Len() != n || !allHavePrefix(set, first) {
						t.Errorf("got %d codes of one or both lists, want the %d codes of one list", set.Len(), n)
						return
					}
				}
			}
		})
	}
	for i := range 6 {
		prefix := string("BA"[i%2])
		write(t, path+".new", numbered(prefix, n))
		require.NoError(t, os.Rename(path+".new", path))
		require.Eventually(t, func() bool { return r.Snapshot("city").Code(0)[0] == prefix[0] }, time.Minute, time.Millisecond)
	}
	close(stop)
	readers.Wait()
}

func allHavePrefix(set *batch.Detectors, prefix byte) bool {
	for i := range set.Len() {
		if set.Code(i)[0] != prefix {
			return false
		}
	}
	return true
}

func TestSnapshotDoesNotAllocate(t *testing.T) {
	path := tempPath(t, "list.csv")
	write(t, path, numbered("A", 3))
	r := start(t, testConfig(FeedConfig{ProductInstance: "city", File: &FileConfig{Path: path}}))
	waitForCodes(t, r, "A0", "A1", "A2")
	require.Zero(t, testing.AllocsPerRun(1000, func() { // many runs, because the feed, which has just been read, allocates too
		if !r.Snapshot("city").Has([]byte("A1")) {
			t.Error("got no detector A1, want one")
		}
	}))
}

func TestMetrics(t *testing.T) {
	path := tempPath(t, "list.csv")
	write(t, path, numbered("A", 3))
	r := start(t, testConfig(
		FeedConfig{ProductInstance: `the "city"`, File: &FileConfig{Path: path}},
		FeedConfig{ProductInstance: "ring", File: &FileConfig{Path: path + ".missing"}},
	))
	want := `
# HELP trafficd_registry_detectors Detectors in the list in use.
# TYPE trafficd_registry_detectors gauge
trafficd_registry_detectors{product_instance="ring"} 0
trafficd_registry_detectors{product_instance="the \"city\""} 3
# HELP trafficd_registry_failing 1 if the last check of the detector list failed, else 0.
# TYPE trafficd_registry_failing gauge
trafficd_registry_failing{product_instance="ring"} 1
trafficd_registry_failing{product_instance="the \"city\""} 0
`
	compare := func() error {
		return testutil.GatherAndCompare(prometheus.DefaultGatherer, strings.NewReader(want), "trafficd_registry_detectors", "trafficd_registry_failing")
	}
	require.Eventually(t, func() bool { return compare() == nil }, time.Minute, time.Millisecond)
	count := func(name string) int {
		n, err := testutil.GatherAndCount(prometheus.DefaultGatherer, name)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 2, count("trafficd_registry_age_seconds"))
	r.Close()
	require.Zero(t, count("trafficd_registry_detectors"))
}

func TestCloseWithoutStart(t *testing.T) {
	r := New(DefaultConfig(), zerolog.Nop())
	r.Close()
	require.Empty(t, r.Status())
}

func TestValidate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	file := func(c FileConfig) FeedConfig { return FeedConfig{ProductInstance: "city", File: &c} }
	f := func(change func(c *Config), want ...string) {
		t.Helper()
		cfg := DefaultConfig()
		cfg.Feeds = []FeedConfig{file(FileConfig{Path: "x.csv", Separator: "tab"})}
		require.NoError(t, cfg.Validate())
		change(&cfg)
		err := cfg.Validate()
		require.Error(t, err)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
	f(func(c *Config) { c.MaxShrink = 1.5 }, "max_shrink is 1.5")
	f(func(c *Config) { c.MaxBytes = 0 }, "max_bytes is 0")
	f(func(c *Config) { c.Feeds = append(c.Feeds, c.Feeds[0]) }, `feeds[1].product_instance "city" already has a feed`)
	f(func(c *Config) { c.Feeds[0].ProductInstance = "" }, "feeds[0].product_instance")
	f(func(c *Config) { c.Feeds[0].ProductInstance = "a\nb" }, "feeds[0].product_instance")
	f(func(c *Config) { c.Feeds[0].InstanceColumn = "x" }, "feeds[0].product_instance and instance_column must not both")
	f(func(c *Config) {
		c.Feeds[0].ProductInstance, c.Feeds[0].InstanceColumn = "", "x"
		c.Feeds = append(c.Feeds, c.Feeds[0])
	}, "feeds[1].instance_column is set in two feeds")
	f(func(c *Config) { c.Feeds[0].File = nil }, "0 of them are set")
	f(func(c *Config) { c.Feeds[0].HTTP = &HTTPConfig{} }, "2 of them are set", "feeds[0].http.url")
	f(func(c *Config) { c.Feeds[0] = file(FileConfig{}) }, "feeds[0].file.path must be set")
	f(func(c *Config) { c.Feeds[0] = file(FileConfig{Path: "x", Format: "xml"}) }, `feeds[0].file.format is "xml"`)
	for _, bad := range []string{`"`, "\n", ",,", "\xff"} {
		f(func(c *Config) { c.Feeds[0] = file(FileConfig{Path: "x", Separator: bad}) }, fmt.Sprintf("feeds[0].file.separator is %q", bad))
	}
	f(func(c *Config) {
		c.Feeds[0] = FeedConfig{ProductInstance: "x", HTTP: &HTTPConfig{URL: "ftp://x", Interval: time.Millisecond, Timeout: time.Hour, Authorization: "a\r\nb"}}
	}, "feeds[0].http.url", "feeds[0].http.interval is 1ms", "feeds[0].http.timeout is 1h0m0s", "feeds[0].http.authorization")
	f(func(c *Config) {
		c.Feeds[0] = FeedConfig{ProductInstance: "x", ClickHouse: &dial.ClickHouseQuery{Address: "localhost", Interval: 25 * time.Hour}}
	}, `feeds[0].clickhouse.address is "localhost"`, "feeds[0].clickhouse.query must be set", "feeds[0].clickhouse.interval is 25h0m0s")
}

// TestReload checks that Reload starts feeds of new product instances, stops removed feeds, and
// keeps the lists in use.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list := func(instance, codes string) FeedConfig {
		path := filepath.Join(dir, instance+".csv")
		require.NoError(t, os.WriteFile(path, []byte("detectorCode\n"+codes+"\n"), 0o600))
		return FeedConfig{ProductInstance: instance, File: &FileConfig{Path: path}}
	}
	cfg := DefaultConfig()
	cfg.Feeds = []FeedConfig{list("city", "A1"), list("hill", "H1")}
	r := New(cfg, zerolog.Nop())
	r.Start(t.Context())
	defer r.Close()
	has := func(instance string) func() bool { return func() bool { return r.Snapshot(instance) != nil } }
	require.Eventually(t, has("city"), time.Minute, time.Millisecond)
	city := r.Snapshot("city")

	require.NoError(t, os.Remove(cfg.Feeds[0].File.Path))
	cfg.Feeds = []FeedConfig{cfg.Feeds[0], list("lake", "L1")}
	r.Reload(cfg)
	require.Same(t, city, r.Snapshot("city"), "the list must remain in use although its file was removed")
	require.Eventually(t, has("lake"), time.Minute, time.Millisecond)
	require.False(t, r.HasFeed("hill"))
}
