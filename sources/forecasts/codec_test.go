package forecasts

import (
	"bytes"
	"io"
	"testing"

	"github.com/segmentio/kafka-go/compress"
	"github.com/stretchr/testify/require"
)

// TestBatchesAreBounded: whichever codec a batch comes in, no more of it is unpacked than the bound.
func TestBatchesAreBounded(t *testing.T) {
	text := make([]byte, 10_000)
	for _, codec := range compress.Codecs[compress.None+1:] {
		var packed bytes.Buffer
		w := codec.NewWriter(&packed)
		_, err := w.Write(text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		f := func(limit int64, whole bool) {
			t.Helper()
			r := codec.NewReader(bytes.NewReader(packed.Bytes())).(*boundedReader)
			require.EqualValues(t, maxBatch, r.left, "as the client gets it")
			r.left = limit
			got, err := io.ReadAll(r)
			require.NoError(t, r.Close())
			if whole {
				require.NoError(t, err)
				require.Equal(t, text, got)
				return
			}
			require.ErrorContains(t, err, "a batch of records has more than")
			require.LessOrEqual(t, int64(len(got)), limit)
		}
		f(int64(len(text)), true)
		f(int64(len(text))-1, false)
		f(0, false)
	}
}
