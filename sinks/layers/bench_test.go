package layers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

const benchStreets = 20_000

// BenchmarkBuild compares a full build with updates of one in a hundred streets, either in one
// district or scattered all over the city, and with builds without changes.
func BenchmarkBuild(b *testing.B) {
	all := city(benchStreets, noon)
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			l := prepared(DefaultConfig())
			replace(l, all)
			rebuild(l, noon)
			b.ReportMetric(float64(l.current.Load().size())/1e6, "MB")
		}
	})
	update := func(name string, street func(i int) int) {
		b.Run(name, func(b *testing.B) {
			l := prepared(DefaultConfig())
			replace(l, all)
			rebuild(l, noon)
			for round := 1.0; b.Loop(); round++ {
				for i := range benchStreets / 100 {
					f := all[street(i)]
					l.Put(forecast(f.Street, f.Fromnode, noon, 6, round))
				}
				rebuild(l, noon)
			}
		})
	}
	update("district", func(i int) int { return 5000 + i })
	update("scattered", func(int) int { return rand.IntN(benchStreets) })
	b.Run("unchanged", func(b *testing.B) {
		l := prepared(DefaultConfig())
		replace(l, all)
		rebuild(l, noon)
		for b.Loop() {
			l.build(noon)
		}
	})
}

// BenchmarkForms measures each step of building a document, per uncompressed byte.
func BenchmarkForms(b *testing.B) {
	l := served(b, benchStreets)
	d := l.current.Load().zones["UTC"][0]
	c := new(compressor)
	for f, name := range []string{"protobuf", "json"} {
		f := format(f)
		plain := d.body(f, identity).size
		run := func(step string, do func(p *piece)) {
			b.Run(name+"/"+step, func(b *testing.B) {
				b.SetBytes(int64(plain))
				for b.Loop() {
					for _, p := range d.pieces {
						do(p)
					}
				}
			})
		}
		run("write", func(p *piece) { c.text = c.append(f, c.text[:0], p) })
		for e := gzipped; e < numEncodings; e++ {
			run(fmt.Sprintf("%s,%d%%", encodingNames[e], 100*d.body(f, e).size/plain), func(p *piece) {
				c.text = c.append(f, c.text[:0], p)
				c.form(c.text, c.values, e, false)
			})
		}
		b.Run(name+"/join", func(b *testing.B) {
			for b.Loop() {
				join(d.pieces, f, gzipped)
			}
		})
	}
}

// BenchmarkBucketSizes reports, for several bucket sizes, the size of the compressed layer and the
// fraction of it that is compressed again when a random hundredth of the streets changes.
func BenchmarkBucketSizes(b *testing.B) {
	list := streetsOf(b, city(benchStreets, noon))
	slices.SortFunc(list, byPosition)
	changed := map[*street]bool{}
	for len(changed) < benchStreets/100 {
		changed[list[rand.IntN(len(list))]] = true
	}
	for _, limit := range []int{10, 20, 40, maxBucketStreets, 160, 320} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			c, z := new(compressor), newZone("UTC", noon, newCompressors())
			for b.Loop() {
				total, recompressed := 0, 0
				buckets := cut(list, limit)
				for _, k := range buckets {
					p := k.part(z, view{whole: true, at: instantOf(noon)}, c)
					n := len(p.form(protobuf, gzipped).bytes)
					if total += n; slices.ContainsFunc(k.streets, func(s *street) bool { return changed[s] }) {
						recompressed += n
					}
				}
				b.ReportMetric(float64(len(list))/float64(len(buckets)), "streets/bucket")
				b.ReportMetric(float64(total)/benchStreets, "B/street")
				b.ReportMetric(float64(recompressed)/float64(total), "recompressed/full")
			}
		})
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

// BenchmarkPut measures the work of a feed's goroutine for each record.
func BenchmarkPut(b *testing.B) {
	l := prepared(DefaultConfig())
	f := forecast(1, 1, noon.Add(time.Hour), 6, 50)
	b.ReportAllocs()
	for b.Loop() {
		l.Put(f)
	}
}
