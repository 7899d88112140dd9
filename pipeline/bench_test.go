package pipeline

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"trafficd/pipeline/batch"
)

// BenchmarkSubmit takes a complete body of 14,000 items through gunzip, decode, validate and the
// journal, including fsync.
func BenchmarkSubmit(b *testing.B) {
	h := open(b, b.TempDir())
	defer h.close()
	r := rand.New(rand.NewPCG(1, 2))
	items, codes := make([]string, 14_000), make([]string, 14_000)
	for i := range items {
		codes[i] = fmt.Sprintf("DET-%06d", 7*i)
		items[i] = item(codes[i], 20+float64(r.IntN(1000))/10)
	}
	h.codes["city"] = set(codes...)
	text := measurements(items...)
	body := zipped(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var s batch.Submission
	in := bytes.NewReader(nil)
	for b.Loop() {
		s.Reset()
		in.Reset(body)
		s.ProductInstance, s.Body = "city", in
		if err := h.intake.Submit(&s); err != nil || s.Result.Accepted != len(items) {
			b.Fatal(err, s.Result.Accepted)
		}
	}
}
