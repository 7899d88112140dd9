package ops

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/deployments"
)

// TestEntries checks that the runbook has each entry to which a reason or another text of the
// programs refers, and that the listener serves them.
func TestEntries(t *testing.T) {
	reference := regexp.MustCompile(`(?:Entry = "|see the runbook, )(Trafficd[A-Za-z]+)`)
	h := Handler(Config{}, func() Readiness { return NewReadiness(nil) }, nil)
	found := map[string]bool{}
	tree := os.DirFS("../../..")
	for _, dir := range []string{"cmd", "pipeline", "sinks", "sources"} {
		require.NoError(t, fs.WalkDir(tree, dir, func(path string, _ fs.DirEntry, err error) error {
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(tree, path)
			require.NoError(t, err)
			for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
				found[m[1]] = true
				w := get(t, h, "GET", RunbookPath+m[1])
				require.Equal(t, 200, w.Code, "%s: the runbook has no section %s", path, m[1])
				require.Contains(t, w.Body.String(), "**Do.**", m[1])
			}
			return nil
		}))
	}
	require.Greater(t, len(found), 15)
	require.Equal(t, 404, get(t, h, "GET", RunbookPath+"nothing").Code)
	require.Equal(t, deployments.Entry("TrafficdNotReady"), get(t, h, "GET", RunbookPath+"TrafficdNotReady").Body.String())
}

// TestReasonsAreLogged checks that a problem is logged once, with its entry, when it has lasted for
// two checks, and again when it ends or another one begins.
func TestReasonsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now Readiness
		set := func(add func(*Component)) {
			c := Component{State: OK}
			add(&c)
			now = NewReadiness(map[string]Component{"journal": c, "keys": {State: OK}})
		}
		set(func(*Component) {})
		var log bytes.Buffer
		s, err := Start(Config{}, func() Readiness { return now }, nil, zerolog.New(&log))
		require.NoError(t, err)
		require.Empty(t, s.Address())
		f := func(checks int, want string) {
			t.Helper()
			log.Reset()
			time.Sleep(time.Duration(checks) * watchEvery)
			synctest.Wait()
			require.Equal(t, want, log.String())
		}
		time.Sleep(watchEvery / 2) // between two checks
		full := func(c *Component) { c.Add(NotReady, JournalFull, "full") }
		f(10, "")
		set(full)
		f(1, "")
		const began = `"component":"journal","reasons":"full; see the runbook, TrafficdJournalFull","message":"a component is not ready"}` + "\n"
		f(1, `{"level":"error",`+began)
		set(func(c *Component) { full(c); c.Add(NotReady, JournalFull, "another client") })
		f(10, "")
		set(func(c *Component) { c.Add(Degraded, DiskLow, "low") })
		f(10, `{"level":"warn","component":"journal","reasons":"low; see the runbook, TrafficdDiskLow","message":"a component is degraded"}`+"\n")
		set(func(*Component) {})
		f(10, `{"level":"info","component":"journal","reasons":"","message":"a component is ok again"}`+"\n")
		s.Stop(t.Context())
	})
}
