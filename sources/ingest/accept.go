package ingest

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/negotiate"
)

// wantsGzip reports whether the answer is to be compressed: Accept-Encoding allows it, or Accept
// names gzip as a word, as in application/gzip, application/json+gzip or
// application/json;encoding=gzip (contract 1.3).
func wantsGzip(h *fasthttp.RequestHeader) bool {
	if negotiate.AcceptsGzip(h.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		return true
	}
	for _, rest := range h.PeekAll(fasthttp.HeaderAccept) {
		for len(rest) > 0 {
			var e negotiate.Element
			e, rest = negotiate.Next(rest)
			if (hasWord(e.Value, []byte("gzip")) || hasWord(e.Parameters, []byte("gzip"))) && e.Quality() > 0 {
				return true
			}
		}
	}
	return false
}

func hasWord(text, word []byte) bool {
	for len(text) >= len(word) {
		end := bytes.IndexFunc(text, func(r rune) bool { return !isLetter(r) })
		if end < 0 {
			end = len(text)
		}
		if bytes.EqualFold(text[:end], word) {
			return true
		}
		text = text[min(end+1, len(text)):]
	}
	return false
}

func isLetter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }
