package layers

import (
	"github.com/valyala/fasthttp"

	"trafficd/schemas/negotiate"
)

// asked lists the headers of a request that its answer depends on. One pass over all headers costs
// less than a look-up of one of them, and most requests have few.
type asked struct{ format, encoding, condition, part, prefer bool }

func askedBy(h *fasthttp.RequestHeader) (a asked) {
	for name := range h.All() {
		switch string(name) {
		case fasthttp.HeaderAccept:
			a.format = true
		case fasthttp.HeaderAcceptEncoding:
			a.encoding = true
		case fasthttp.HeaderIfMatch, fasthttp.HeaderIfNoneMatch, fasthttp.HeaderIfModifiedSince, fasthttp.HeaderIfUnmodifiedSince:
			a.condition = true
		case fasthttp.HeaderRange:
			a.part = true
		case "Prefer":
			a.prefer = true
		}
	}
	return a
}

// chooseFormat evaluates Accept. It returns JSON if the client prefers it to protobuf, otherwise
// protobuf, even if neither is acceptable: a 406 would not help any client.
func chooseFormat(h *fasthttp.RequestHeader) format {
	lines := h.PeekAll(fasthttp.HeaderAccept)
	if negotiate.Application(lines, mediaTypes[jsonText]) > max(negotiate.Application(lines, mediaTypes[protobuf]), 0) {
		return jsonText
	}
	return protobuf
}

// chooseEncoding evaluates Accept-Encoding. Among equals it prefers gzip to zstd, which is smaller
// but costs more to build, and both to identity, which it also returns if nothing is acceptable.
func chooseEncoding(h *fasthttp.RequestHeader) encoding {
	lines := h.PeekAll(fasthttp.HeaderAcceptEncoding)
	best, bestQ := identity, max(negotiate.Named(lines, encodingNames[identity]), 0)
	for _, e := range [...]encoding{zstandard, gzipped} {
		if q := negotiate.Coding(lines, encodingNames[e]); q > 0 && q >= bestQ {
			best, bestQ = e, q
		}
	}
	return best
}
