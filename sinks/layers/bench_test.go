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
			b.ReportMetric(float64(l.current.Load().bytes)/1e6, "MB")
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
	c := compressors.Get().(*compressor)
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
		run("text", func(p *piece) { c.text = p.appendText(c.text[:0], f) })
		run("gzip", func(p *piece) {
			c.text = p.appendText(c.text[:0], f)
			c.form(c.text, gzipped, p.level(0))
		})
		b.Run(name+"/join", func(b *testing.B) {
			for b.Loop() {
				join(d.pieces, f, gzipped)
			}
		})
	}
}

// BenchmarkCellSizes reports, for several sizes of cells, the size of the compressed layer and of a
// compressed horizon.
func BenchmarkCellSizes(b *testing.B) {
	list := streetsOf(b, city(benchStreets, noon))
	slices.SortFunc(list, byPosition)
	z := &zone{name: "UTC"}
	for _, limit := range []int{100, 200, maxCellStreets, 800} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			for b.Loop() {
				cells := cut(list, limit, nil)
				b.ReportMetric(float64(len(list))/float64(len(cells)), "streets/cell")
				for unit, v := range map[string]view{"B/street": {whole: true, at: instantOf(noon)}, "B/street,horizon": horizon(30).from(instantOf(noon))} {
					total := 0
					for _, c := range cells {
						total += len(newPiece(c.streets, v, z, false).form(protobuf, gzipped).bytes)
					}
					b.ReportMetric(float64(total)/benchStreets, unit)
				}
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

// BenchmarkTile makes a tile of 20,000 streets, and sends one that was made.
func BenchmarkTile(b *testing.B) {
	l := prepared(DefaultConfig())
	replace(l, city(20_000, noon))
	rebuild(l, noon)
	s := l.current.Load()
	p := s.cells[0].streets[0].place
	k := tileKey{zoom: 6, x: p.x >> 26, y: p.y >> 26}
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var made tile
			s.fill(k, &made)
			b.ReportMetric(float64(len(made.gzipped)), "gzip-B")
		}
	})
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.tiles.get(k, func(made *tile) { s.fill(k, made) })
		}
	})
}
