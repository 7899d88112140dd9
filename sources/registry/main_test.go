package registry

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/pipeline/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig returns the default settings with feeds.
func testConfig(feeds ...FeedConfig) Config {
	cfg := DefaultConfig()
	cfg.Feeds = feeds
	return cfg
}

// newTestFeed returns a feed that is not running: the test must call check.
func newTestFeed(t *testing.T, fc FeedConfig) *feed {
	t.Helper()
	fc.ProductInstance = "test"
	cfg := testConfig(fc)
	require.NoError(t, cfg.Validate())
	f := newFeed(cfg, fc.withDefaults(), zerolog.New(zerolog.NewTestWriter(t)))
	t.Cleanup(func() { f.source.close() })
	return f
}

// onlyList returns the list of a feed with one product instance.
func (f *feed) onlyList() *list { return (*f.lists.Load())[f.instance] }

// collect returns the codes that read adds.
func collect(read func(addEntry) error) (codes []string, err error) {
	if err = read(func(_ int, _, code string, _ ...batch.Attribute) { codes = append(codes, code) }); err != nil {
		return nil, err
	}
	return codes, nil
}

// write writes a file whose modification time is old enough for it to count as settled.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
}

// numbered returns a CSV list of the codes prefix0, prefix1, …
func numbered(prefix string, n int) string {
	var b bytes.Buffer
	b.WriteString("detectorCode,street\n")
	for i := range n {
		fmt.Fprintf(&b, "%s%d,Søftenvej\n", prefix, i)
	}
	return b.String()
}

// codesOf returns the codes of a set, or nil if there is no set.
func codesOf(set *batch.Detectors) []string {
	if set == nil {
		return nil
	}
	codes := make([]string, set.Len())
	for i := range codes {
		codes[i] = string(set.Code(i))
	}
	return codes
}

// tempPath returns the path of a file in a new temporary directory.
func tempPath(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), name)
}

func (f *feed) check(ctx context.Context) time.Duration { return f.loop().Check(ctx) }

// age makes a list as old as if the feed had failed for an hour.
func age(l *list) {
	state := l.Get()
	state.Confirmed = time.Now().Add(-time.Hour)
	l.Set(state)
}
