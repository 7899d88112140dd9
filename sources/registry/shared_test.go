package registry

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/metrics"
)

// towns returns a shared list with two detectors in each of n product instances. The entries are
// not grouped by product instance.
func towns(n int) string {
	var b strings.Builder
	b.WriteString("tenant,detectorCode\n")
	for k := range 2 {
		for i := range n {
			fmt.Fprintf(&b, "town%d,T%d-%d\n", i, i, k)
		}
	}
	return b.String()
}

// TestSharedList follows one list of many product instances through changes, restarts and a reload.
func TestSharedList(t *testing.T) {
	t.Parallel()
	path, cityPath := tempPath(t, "towns.csv"), tempPath(t, "city.csv")
	write(t, cityPath, "detectorCode\nC\n")
	cfg := testConfig(
		FeedConfig{InstanceColumn: "tenant", File: &FileConfig{Path: path}},
		FeedConfig{ProductInstance: "city", File: &FileConfig{Path: cityPath}},
	)
	cfg.CacheDir = tempPath(t, "cache")
	require.NoError(t, cfg.Validate())
	// restart returns a registry that has read its feeds once.
	restart := func() *Registry {
		t.Helper()
		r := start(t, cfg)
		require.Eventually(t, func() bool {
			for _, s := range r.Status() {
				if s.Pending {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
		return r
	}
	failing := func(r *Registry) (instances []string) {
		for _, s := range r.Status() {
			if s.Error != "" {
				instances = append(instances, s.ProductInstance)
			}
		}
		return instances
	}
	r := restart()
	require.Equal(t, []string{everyInstance}, failing(r), "there must be one error for all product instances")
	require.True(t, r.HasFeed("town7"), "before the list has been read")
	require.Nil(t, r.Snapshot("town7"))

	rows := towns(10) + "city,X\n*,X\n,X\n"
	change := func(content string) {
		write(t, path+".new", content)
		require.NoError(t, os.Rename(path+".new", path))
	}
	change(rows)
	require.Eventually(t, func() bool { return len(failing(r)) == 0 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"T7-0", "T7-1"}, codesOf(r.Snapshot("town7")))
	require.Equal(t, []string{"C"}, codesOf(r.Snapshot("city")), "a separate feed must have priority")
	require.False(t, r.HasFeed("town10"))
	require.False(t, r.HasFeed(""))
	require.Equal(t, 20, r.Status()[0].Detectors)
	require.Len(t, r.Status(), 12)

	change(strings.ReplaceAll(strings.ReplaceAll(rows, "town3,", "town13,"), "town4,T4-1", "town4,T4-9"))
	require.Eventually(t, func() bool { return r.Snapshot("town13") != nil && !r.HasFeed("town3") }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"T4-0", "T4-9"}, codesOf(r.Snapshot("town4")))
	town7 := r.Snapshot("town7")
	change(towns(4))
	require.Eventually(t, func() bool { return len(failing(r)) == 1 }, time.Minute, time.Millisecond)
	require.Contains(t, r.Status()[0].Error, "lacks 7 of the 10 product instances in use")
	require.Same(t, town7, r.Snapshot("town7"), "a truncated list must change nothing")

	r.Close()
	r = restart()
	require.Equal(t, codesOf(town7), codesOf(r.Snapshot("town7")), "the guard must work across restarts")
	require.Equal(t, []string{everyInstance}, failing(r))
	r.Reload(cfg)
	require.Equal(t, codesOf(town7), codesOf(r.Snapshot("town7")))

	cfg.MaxShrink = 1
	r.Reload(cfg)
	require.Eventually(t, func() bool { return !r.HasFeed("town7") && r.HasFeed("town3") }, time.Minute, time.Millisecond)
	change("tenant,detectorCode\n")
	require.Eventually(t, func() bool { return len(failing(r)) == 1 }, time.Minute, time.Millisecond)
	require.Contains(t, r.Status()[0].Error, "has no product instance")
	change("detectorCode\nA\n")
	require.Eventually(t, func() bool { return strings.Contains(r.Status()[0].Error, `no column "tenant"`) }, time.Minute, time.Millisecond)
	require.Len(t, codesOf(r.Snapshot("town3")), 2)
}

// TestSharedListPartlyShrinks checks that if the list of one product instance lacks too many codes,
// only this list is rejected.
func TestSharedListPartlyShrinks(t *testing.T) {
	path := tempPath(t, "towns.json")
	cfg := testConfig(FeedConfig{InstanceColumn: "tenant", File: &FileConfig{Path: path, Column: "code"}})
	f := newFeed(cfg, cfg.Feeds[0].withDefaults(), zerolog.Nop())
	t.Cleanup(func() { metrics.Unregister(f.gauges()...) })
	t.Cleanup(f.source.close)
	write(t, path, `[{"code":"A","tenant":"a"},{"code":"B","tenant":"a"},{"code":"C","tenant":"a"},{"code":"Z","tenant":"z"}]`)
	f.check(t.Context())
	for range 2 { // the list is read again although the file has not changed
		write(t, path, `{"detectors":[{"code":"A","tenant":"a"},{"code":"Y","tenant":"z"},{"code":"Z","tenant":"z"}]}`)
		f.check(t.Context())
		require.Len(t, codesOf((*f.lists.Load())["a"].current.Load()), 3)
		require.Equal(t, []string{"Y", "Z"}, codesOf((*f.lists.Load())["z"].current.Load()))
		status := f.status(time.Now())
		require.Empty(t, status[0].Error+status[2].Error)
		require.Contains(t, status[1].Error, "lacks 2 of the 3")
	}
	(*f.lists.Load())["a"].guard.ShrinkConfirm = 0
	f.check(t.Context())
	require.Equal(t, []string{"A"}, codesOf((*f.lists.Load())["a"].current.Load()))
	write(t, path, `["A"]`)
	f.check(t.Context())
	require.Contains(t, f.status(time.Now())[0].Error, `entry 0 of the list: no member "tenant"`)
}

// TestSharedListIsTakenBack checks that the former version of a shared list is used again after one
// that was used only in part.
func TestSharedListIsTakenBack(t *testing.T) {
	content := ""
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		etag := fmt.Sprintf(`"%d"`, len(content))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(service.Close)
	path := tempPath(t, "towns.json")
	for _, fc := range []FeedConfig{
		{InstanceColumn: "tenant", HTTP: &HTTPConfig{URL: service.URL, Column: "code"}},
		{InstanceColumn: "tenant", File: &FileConfig{Path: path, Column: "code"}},
	} {
		cfg := testConfig(fc)
		f := newFeed(cfg, fc.withDefaults(), zerolog.Nop())
		t.Cleanup(func() { metrics.Unregister(f.gauges()...) })
		t.Cleanup(f.source.close)
		check := func(version int, wantError string, want map[string][]string) {
			t.Helper()
			content = []string{
				`[{"code":"A","tenant":"a"},{"code":"B","tenant":"b"},{"code":"C","tenant":"c"}]`,
				`[{"code":"A","tenant":"a"},{"code":"B","tenant":"b"},{"code":"X","tenant":"b"},{"code":"","tenant":"d"}]`,
			}[version]
			write(t, path, content)
			require.NoError(t, os.Chtimes(path, time.Unix(int64(version), 0), time.Unix(int64(version), 0)))
			f.check(t.Context())
			got, problems := map[string][]string{}, ""
			for instance, l := range *f.lists.Load() {
				got[instance] = codesOf(l.current.Load())
				problems += l.status(time.Now()).Error
			}
			require.Equal(t, want, got)
			require.Contains(t, problems, wantError)
		}
		check(0, "", map[string][]string{"a": {"A"}, "b": {"B"}, "c": {"C"}})
		check(1, "no detector codes", map[string][]string{"a": {"A"}, "b": {"B", "X"}, "d": nil})
		check(0, "", map[string][]string{"a": {"A"}, "b": {"B"}, "c": {"C"}})
	}
}

// TestSharedListPolled reads a shared list from ClickHouse and over HTTP.
func TestSharedListPolled(t *testing.T) {
	store := stores.StartClickHouse(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"code":"A","tenant":"a"},{"code":"B","tenant":"b"}]`)
	}))
	t.Cleanup(service.Close)
	clickhouse := dial.ClickHouseQuery{
		Address: store.TCP, ClickHouse: dial.ClickHouse{Username: "trafficd", Password: "trafficd"},
		Query: "SELECT upper(tenant) AS code, number, tenant FROM (SELECT number, char(97 + number) AS tenant FROM numbers(2))",
	}
	for _, fc := range []FeedConfig{
		{InstanceColumn: "tenant", ClickHouse: &clickhouse},
		{InstanceColumn: "tenant", HTTP: &HTTPConfig{URL: service.URL, Column: "code"}},
	} {
		cfg := testConfig(fc)
		require.NoError(t, cfg.Validate())
		require.NoError(t, cfg.Check(t.Context(), io.Discard, true))
		f := newFeed(cfg, fc.withDefaults(), zerolog.Nop())
		t.Cleanup(func() { metrics.Unregister(f.gauges()...) })
		t.Cleanup(f.source.close)
		f.check(t.Context())
		require.Empty(t, f.status(time.Now())[0].Error)
		require.Equal(t, []string{"A"}, codesOf((*f.lists.Load())["a"].current.Load()))
		require.Equal(t, []string{"B"}, codesOf((*f.lists.Load())["b"].current.Load()))
	}
	clickhouse.Query = "SELECT 'A'"
	cfg := testConfig(FeedConfig{InstanceColumn: "tenant", ClickHouse: &clickhouse})
	require.ErrorContains(t, cfg.Check(t.Context(), io.Discard, true), `no column "tenant" after the first`)
}

// TestCheckSharedList checks that the error of each product instance starts with the key of the
// feed and names the product instance.
func TestCheckSharedList(t *testing.T) {
	path := tempPath(t, "towns.csv")
	cfg := testConfig(FeedConfig{InstanceColumn: "tenant", File: &FileConfig{Path: path}})
	write(t, path, "tenant,detectorCode\nb,\na,\nc,C\n")
	const reason = "the list has no detector codes: an empty list is never used"
	require.EqualError(t, cfg.Check(t.Context(), io.Discard, true),
		"feeds[0].file: product instance a: "+reason+"\nfeeds[0].file: product instance b: "+reason)
	write(t, path, "tenant,code\n")
	require.ErrorContains(t, cfg.Check(t.Context(), io.Discard, true), "feeds[0].file: cannot read "+path)
}
