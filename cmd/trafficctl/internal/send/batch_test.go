package send

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/cmd/trafficctl/internal/measurement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBatch(t *testing.T) {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	require.NoError(t, err)
	var b batch
	for round := range 2 { // a batch is reused
		b.reset()
		items := []string{`{"a":1}`, `5`, `"x"`}[round:]
		for _, text := range items {
			b.add(measurement.Item{JSON: []byte(text)})
		}
		require.NoError(t, b.pack(z))
		r, err := gzip.NewReader(&b.packed)
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, `{"measurements":[`+strings.Join(items, ",")+`]}`, string(text))
		require.True(t, json.Valid(text))
		for i, want := range items {
			require.Equal(t, want, string(b.item(i)))
		}
	}
}

func TestBatchIsFullByBytes(t *testing.T) {
	var b batch
	b.reset()
	giant := measurement.Item{JSON: bytes.Repeat([]byte("1"), 1<<20)}
	for !b.full(BatchLimit) {
		b.add(giant)
	}
	require.Less(t, len(b.body), maxBody+2<<20)
	require.Equal(t, maxBody>>20, b.len())
}

// TestBatchDoesNotAllocate checks that filling and compressing a reused batch does not allocate.
func TestBatchDoesNotAllocate(t *testing.T) {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	item := itemOf("D1", 7)
	var b batch
	b.reset()
	allocs := testing.AllocsPerRun(20, func() {
		b.body, b.ends, b.positions = b.body[:0], b.ends[:0], b.positions[:0]
		b.packed.Reset()
		for range 1000 {
			b.add(item)
		}
		if err := b.pack(z); err != nil {
			panic(err)
		}
	})
	require.Zero(t, allocs)
}

func BenchmarkBatch(b *testing.B) {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	var items []measurement.Item
	for n := range BatchLimit {
		items = append(items, itemOf(fmt.Sprintf("D%d", n), n))
	}
	var full batch
	b.ReportAllocs()
	for b.Loop() {
		full.reset()
		for _, item := range items {
			full.add(item)
		}
		if err := full.pack(z); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(full.body)))
	}
	b.ReportMetric(float64(b.N)*BatchLimit/b.Elapsed().Seconds(), "items/s")
}
