package layers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	pb "trafficd/schemas/proto/trafficd/v1"
)

const benchStreets = 20_000

// BenchmarkBuild compares a build from nothing with updates of one in a hundred
// streets: a district's, and some all over the city.
func BenchmarkBuild(b *testing.B) {
	all := city(benchStreets, noon)
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			l := prepared(DefaultConfig())
			l.Replace(all)
			l.Publish(noon)
			l.build(noon)
			b.ReportMetric(float64(l.current.Load().size())/1e6, "MB")
		}
	})
	update := func(name string, which func(i int) int) {
		b.Run(name, func(b *testing.B) {
			l := prepared(DefaultConfig())
			l.Replace(all)
			l.Publish(noon)
			l.build(noon)
			for round := 1.0; b.Loop(); round++ {
				for i := range benchStreets / 100 {
					f := all[which(i)]
					l.Put(forecast(f.Street, f.Fromnode, noon, 6, round))
				}
				l.Publish(noon)
				l.build(noon)
			}
		})
	}
	update("district", func(i int) int { return 5000 + i })
	update("scattered", func(int) int { return rand.IntN(benchStreets) })
	b.Run("nothing", func(b *testing.B) {
		l := prepared(DefaultConfig())
		l.Replace(all)
		l.Publish(noon)
		l.build(noon)
		for b.Loop() {
			l.build(noon)
		}
	})
}

// BenchmarkForms shows what each step of a document costs for each byte of identity.
func BenchmarkForms(b *testing.B) {
	var list []*street
	for _, f := range city(benchStreets, noon) {
		s, err := newStreet(f)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, s)
	}
	buckets := cut(list, nil)
	for f, name := range []string{"protobuf", "json"} {
		p := renderer{scope: scope{whole: true}, format: format(f), writer: newWriter("Europe/Copenhagen"), compressor: newCompressor()}
		d := p.render(nil, buckets, instantOf(noon), noon)
		plain := d.bodies[identity].size
		run := func(step string, do func()) {
			b.Run(name+"/"+step, func(b *testing.B) {
				b.SetBytes(int64(plain))
				for b.Loop() {
					do()
				}
			})
		}
		each := func(compress func([]byte) []byte) func() {
			return func() {
				for _, part := range d.parts {
					compress(part.forms[identity])
				}
			}
		}
		run("write", func() {
			var dst []byte
			for _, s := range list {
				picked, _ := p.scope.pick(p.picked[:0], s, instantOf(noon))
				dst = p.append(p.format, dst[:0], s, picked)
			}
		})
		run(fmt.Sprintf("gzip,%d%%", 100*d.bodies[gzipped].size/plain), each(p.deflated))
		run(fmt.Sprintf("zstd,%d%%", 100*d.bodies[zstandard].size/plain), each(p.zstdBlocks))
		run("join", func() { p.bodies(p.pages(nil, d.parts)) })
	}
}

func BenchmarkServe(b *testing.B) {
	l, c := served(b, 1000), client("UTC")
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.SetRequestURI(Path + "?horizon=30")
	ctx.Request.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	b.ReportAllocs()
	for b.Loop() {
		ctx.Response.Reset()
		if _, err := l.Handle(c, ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPut is what a feed's goroutine does for each record.
func BenchmarkPut(b *testing.B) {
	l := prepared(DefaultConfig())
	f := forecast(1, 1, noon.Add(time.Hour), 6, 50)
	b.ReportAllocs()
	for b.Loop() {
		l.Put(f)
	}
	l.Replace([]*pb.StreetForecast{f})
}
