package layers

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChecksumsCombine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	f := func(cuts ...int) {
		t.Helper()
		var whole checksum
		from := 0
		for _, to := range append(cuts, len(text)) {
			whole = whole.then(checksum{}.add(text[from:to]))
			from = to
		}
		require.Equal(t, checksum{crc32.ChecksumIEEE(text), len(text)}, whole, "cut at %v", cuts)
	}
	f()
	f(0)
	f(len(text))
	f(1, 1, 2, 3)
	f(255, 256, 257, 65535, 65536)
	for range 100 {
		a, b := random.IntN(len(text)), random.IntN(len(text))
		f(min(a, b), max(a, b))
	}
}
