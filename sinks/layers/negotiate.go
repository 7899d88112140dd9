package layers

import (
	"github.com/valyala/fasthttp"

	"trafficd/schemas/negotiate"
)

// requestHeaders records which of the headers that affect the response are present in a request.
// One pass over all headers is cheaper than separate lookups, and most requests have few headers.
type requestHeaders struct{ accept, acceptEncoding, condition, byteRange bool }

func headersOf(h *fasthttp.RequestHeader) (has requestHeaders) {
	for name := range h.All() {
		switch string(name) {
		case fasthttp.HeaderAccept:
			has.accept = true
		case fasthttp.HeaderAcceptEncoding:
			has.acceptEncoding = true
		case fasthttp.HeaderIfMatch, fasthttp.HeaderIfNoneMatch, fasthttp.HeaderIfModifiedSince, fasthttp.HeaderIfUnmodifiedSince:
			has.condition = true
		case fasthttp.HeaderRange:
			has.byteRange = true
		}
	}
	return has
}

// chooseFormat evaluates Accept. It returns JSON if the client prefers it to protobuf, and protobuf
// in all other cases, even if neither is acceptable: a 406 would not help any client.
func chooseFormat(h *fasthttp.RequestHeader) format {
	lines := h.PeekAll(fasthttp.HeaderAccept)
	if negotiate.ApplicationQuality(lines, mediaTypes[jsonText]) > max(negotiate.ApplicationQuality(lines, mediaTypes[protobuf]), 0) {
		return jsonText
	}
	return protobuf
}

// chooseEncoding evaluates Accept-Encoding. At equal quality it prefers gzip to zstd, which is
// smaller but costs more to build, and both to identity. It returns identity if nothing is
// acceptable.
func chooseEncoding(h *fasthttp.RequestHeader) encoding {
	lines := h.PeekAll(fasthttp.HeaderAcceptEncoding)
	best, bestQ := identity, max(negotiate.QualityOf(lines, encodingNames[identity]), 0)
	for _, e := range [...]encoding{zstandard, gzipped} {
		if q := negotiate.CodingQuality(lines, encodingNames[e]); q > 0 && q >= bestQ {
			best, bestQ = e, q
		}
	}
	return best
}
