package decode

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-faster/jx"

	"trafficd/pipeline/batch"
)

// typical returns a batch of the most common shape: one interval, one value per detector.
func typical(items int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString(`{"measurements":[`)
	for i := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"detectorCode":"DET-%06d","measureTypeCode":"speed","timestampFrom":"2026-11-20T10:00:00Z","timestampTo":"2026-11-20T10:05:00Z","value":%.1f,"quality":%.2f}`,
			i, r.Float64()*130, r.Float64())
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// oneLink returns a batch of the other shape: two values of one detector for consecutive intervals.
func oneLink(items int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	b.WriteString(`{"measurements":[`)
	for i := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		from := at.Add(time.Duration(i/2) * 5 * time.Minute)
		fmt.Fprintf(&b, `{"detectorCode":"158324","measureTypeCode":%q,"timestampFrom":%q,"timestampTo":%q,"value":%d}`,
			[]string{"speed", "flow"}[i%2], from.Format(time.RFC3339), from.Add(5*time.Minute).Format(time.RFC3339), r.IntN(100))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkDecode(b *testing.B) {
	run := func(name string, body []byte, predict bool) {
		b.Run(name, func(b *testing.B) {
			d := New(DefaultConfig())
			if !predict {
				d.layouts.maxBytes = 0
			}
			var it batch.Items
			r := bytes.NewReader(nil)
			from := &source{Reader: r}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(body)
				from.end = 0
				if err := d.Decode(from, &it); err != nil || it.Count != 14_000 {
					b.Fatal(err, it.Count)
				}
			}
		})
	}
	body := typical(14_000)
	run("predicted", body, true)
	run("predicted_one_link", oneLink(14_000), true)
	run("lexer", body, false)
	b.Run("jx", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		d := jx.GetDecoder()
		for b.Loop() {
			d.ResetBytes(body)
			if err := d.Skip(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
