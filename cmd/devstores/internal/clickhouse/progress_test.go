package clickhouse

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowReader fills n more buffers, ten a second.
type slowReader struct{ n int }

func (s *slowReader) Read(b []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	s.n--
	time.Sleep(100 * time.Millisecond)
	return len(b), nil
}

func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var dst bytes.Buffer
		require.NoError(t, copyWithProgress(&dst, &slowReader{50}, &log, "fetching x", 178e6))
		require.Equal(t, 50<<15, dst.Len(), "io.Copy has a buffer of 32 KiB")
		require.Equal(t, "fetching x …\nfetching x: 0 of 178 MB\nfetching x: 1 of 178 MB\nfetching x: done in 5.0 s\n", log.String())
	})
}
