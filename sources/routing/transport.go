package routing

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// checkHeader applies the rules for the header whose violation does not result in a fault.
func checkHeader(h *fasthttp.RequestHeader, maxBody int64) *contract.APIError {
	switch media, _ := contentType(h); media {
	case "", "text/xml", "application/xml", soap12: // SOAP 1.2 gets a fault, see checkContent
	default:
		return contract.NewParameterError(contract.UnsupportedContentType, fasthttp.HeaderContentType,
			fmt.Sprintf("unsupported Content-Type %q: send a SOAP 1.1 envelope as text/xml; charset=utf-8", contract.Echo(media)))
	}
	if times, other := codings(h); len(other) > 0 || times > 1 {
		description := fmt.Sprintf("the Content-Encoding names gzip %d times: compress the envelope once", times)
		if len(other) > 0 {
			description = fmt.Sprintf("unsupported Content-Encoding %q: compress the envelope with gzip, once, or not at all", contract.Echo(other))
		}
		return contract.NewParameterError(contract.UnsupportedContentType, fasthttp.HeaderContentEncoding, description)
	}
	if int64(h.ContentLength()) > maxBody {
		return tooLarge(maxBody)
	}
	return nil
}

const soap12 = "application/soap+xml"

// checkContent applies the rules for the header whose violation results in a fault.
func checkContent(h *fasthttp.RequestHeader) *failure {
	media, charset := contentType(h)
	if media == soap12 {
		const reason = "the Content-Type " + soap12 + " means SOAP 1.2: this service supports only SOAP 1.1, as text/xml"
		return &failure{class: version, message: reason}
	}
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii", "utf-16", "utf-16le", "utf-16be":
		return nil
	}
	message := fmt.Sprintf("the charset %q is not supported: send UTF-8", contract.Echo(charset))
	return &failure{class: illegal, context: []string{fasthttp.HeaderContentType}, message: message}
}

func contentType(h *fasthttp.RequestHeader) (media, charset string) {
	value := string(h.ContentType())
	media, parameters, err := mime.ParseMediaType(value)
	if err != nil {
		media, _, _ = strings.Cut(value, ";")
		return strings.ToLower(strings.TrimSpace(media)), ""
	}
	return media, parameters["charset"]
}

// codings returns the number of times that Content-Encoding lists gzip, and its first coding other
// than gzip and identity.
func codings(h *fasthttp.RequestHeader) (times int, other []byte) {
	return negotiate.CountGzip(h.PeekAll(fasthttp.HeaderContentEncoding), "identity")
}

// minCompressed is the minimum size of a compressed response. Smaller ones fit into one packet.
const minCompressed = 1 << 10

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// send responds with an envelope, compressed if the client accepts gzip.
func (s *Service) send(ctx *fasthttp.RequestCtx, client string, envelope []byte, fault bool) {
	h := &ctx.Response.Header
	if fault {
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
	}
	h.SetContentType("text/xml; charset=utf-8")
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	if len(envelope) >= minCompressed && negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		var out bytes.Buffer
		w := gzipWriters.Get().(*gzip.Writer)
		w.Reset(&out)
		_, _ = w.Write(envelope) // writing to memory cannot fail
		_ = w.Close()
		gzipWriters.Put(w)
		envelope = out.Bytes()
		h.SetContentEncoding("gzip")
	}
	ctx.Response.SetBodyStream(newResponseBody(s.memory, client, envelope), len(envelope))
}

func tooLarge(limit int64) *contract.APIError {
	return contract.NewError(contract.BodyTooLarge,
		fmt.Sprintf("the body is larger than %d bytes: send fewer geometries in one request", limit))
}
