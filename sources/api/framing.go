package api

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// framing refuses requests that two readers can cut differently, which is how
// requests are smuggled past a proxy. fasthttp turns most of them down itself, but
// takes a Content-Length beside chunks, and "Transfer-Encoding: identity", which
// has no meaning any more (RFC 9112, 6.1 and 6.3); neither shows in the parsed
// header, so that the raw one is looked at.
func framing(h *fasthttp.RequestHeader) *contract.APIError {
	raw := h.RawHeaders()
	te, coded := rawHeader(raw, fasthttp.HeaderTransferEncoding)
	if !coded {
		return nil
	}
	if !bytes.EqualFold(te, []byte("chunked")) {
		return &contract.APIError{Code: contract.InvalidParameter, Description: "the only transfer coding taken is chunked", Parameter: fasthttp.HeaderTransferEncoding}
	}
	if _, both := rawHeader(raw, fasthttp.HeaderContentLength); both {
		return &contract.APIError{Code: contract.InvalidParameter, Description: "a request has either a Content-Length or a Transfer-Encoding, not both", Parameter: fasthttp.HeaderContentLength}
	}
	return nil
}

// rawHeader gives the first value of a header in an unparsed block. Most lines it knows by
// their first letter.
func rawHeader(raw []byte, name string) (value []byte, ok bool) {
	for len(raw) > 0 {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte{'\n'})
		if len(line) > 0 && line[0] > ' ' && line[0]|0x20 != name[0]|0x20 {
			continue
		}
		key, value, _ := bytes.Cut(line, []byte{':'})
		if bytes.EqualFold(bytes.TrimSpace(key), []byte(name)) {
			return bytes.TrimSpace(value), true
		}
	}
	return nil, false
}
