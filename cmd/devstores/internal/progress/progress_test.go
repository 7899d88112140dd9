package progress

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLinesWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		m := Bytes(&out, "fetching x", 178e6)
		for n := range int64(5) {
			time.Sleep(time.Second)
			m.Set(n * 20e6)
		}
		m.Done()
		require.Equal(t, "fetching x …\n"+
			"fetching x: 20 of 178 MB\n"+
			"fetching x: 60 of 178 MB\n"+
			"fetching x: done in 5.0 s\n", out.String())

		out.Reset()
		m = Files(&out, "fetching y")
		time.Sleep(3 * time.Second)
		m.Set(47)
		require.Equal(t, "fetching y …\nfetching y: 47 files\n", out.String())
	})
}
