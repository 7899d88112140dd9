package ingest

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"
)

// wantsGzip tells whether the answer is to be compressed: Accept-Encoding allows
// it, or Accept names gzip, as in the interface specification's example
// (contract 1.3).
func wantsGzip(h *fasthttp.RequestHeader) bool {
	return acceptsGzip(h.PeekAll(fasthttp.HeaderAcceptEncoding)) || namesGzip(h.PeekAll(fasthttp.HeaderAccept))
}

// acceptsGzip reads Accept-Encoding (RFC 9110, 12.5.3): gzip's own weight counts, else
// that of *.
func acceptsGzip(values [][]byte) bool {
	gzip, others := -1.0, -1.0
	for _, value := range values {
		for element := range bytes.SplitSeq(value, []byte{','}) {
			coding, parameters, _ := bytes.Cut(element, []byte{';'})
			coding = bytes.TrimSpace(coding)
			if isGzip(coding) {
				gzip = max(gzip, weight(parameters))
			} else if string(coding) == "*" {
				others = max(others, weight(parameters))
			}
		}
	}
	return gzip > 0 || gzip < 0 && others > 0
}

// namesGzip looks for gzip as a word of its own, as in application/gzip,
// application/json+gzip or application/json;encoding=gzip.
func namesGzip(values [][]byte) bool {
	for _, value := range values {
		for element := range bytes.SplitSeq(value, []byte{','}) {
			_, parameters, _ := bytes.Cut(element, []byte{';'})
			if weight(parameters) > 0 && hasWord(element, []byte("gzip")) {
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

// weight is the q parameter, 1 without one; a malformed one is 0, because the client
// did not say that it wants this.
func weight(parameters []byte) float64 {
	for parameter := range bytes.SplitSeq(parameters, []byte{';'}) {
		name, value, _ := bytes.Cut(parameter, []byte{'='})
		if bytes.EqualFold(bytes.TrimSpace(name), []byte("q")) {
			q, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
			if err != nil || !(q >= 0 && q <= 1) {
				return 0
			}
			return q
		}
	}
	return 1
}
