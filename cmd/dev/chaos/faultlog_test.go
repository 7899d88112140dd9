package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
)

// TestFaultLog checks that the file has every fault, and that those around the first lost batch are
// printed.
func TestFaultLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, verbose, out := t.TempDir(), new(strings.Builder), new(strings.Builder)
		log, err := newFaultLog(dir, verbose)
		require.NoError(t, err)
		var batch []ledger.Accepted
		for _, fault := range []string{"early", "before", "after", "late"} {
			time.Sleep(15 * time.Second)
			log.add("%s 0: %s", daemon, fault)
			if fault == "before" {
				time.Sleep(5 * time.Second)
				batch = []ledger.Accepted{{Batch: "b1"}}
				new(ledger.Ledger).Accept(batch)
			}
		}
		later := batch[0]
		later.Batch, later.At = "b2", later.At.Add(time.Second)
		log.explain(out, []*judge.Verdict{{}, {}})
		require.Empty(t, out.String(), "nothing was lost")
		log.explain(out, []*judge.Verdict{{First: later}, {}, {First: batch[0]}})
		require.NoError(t, log.close())

		const all = `00:00:15.000 trafficd 0: early
00:00:30.000 trafficd 0: before
00:00:50.000 trafficd 0: after
00:01:05.000 trafficd 0: late
`
		file := filepath.Join(dir, "faults.log")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, all, string(text))
		require.Equal(t, all, verbose.String())
		require.Equal(t, "   the first lost or duplicated batch is b1, with a 207 at 00:00:35.000 UTC; the faults from 10s before to 30s after that, of all in "+file+`:
   00:00:30.000 trafficd 0: before
   00:00:50.000 trafficd 0: after
   00:01:05.000 trafficd 0: late
`, out.String())
	})
}
