package routing

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
)

// checkHeader applies the rules that the header alone decides.
func checkHeader(h *fasthttp.RequestHeader, maxBody int64) *contract.APIError {
	switch media, _ := contentType(h); media {
	case "", "text/xml", "application/xml", soap12: // SOAP 1.2 gets a fault, see checkContent
	default:
		return &contract.APIError{
			Code: contract.UnsupportedContentType, Parameter: fasthttp.HeaderContentType,
			Description: fmt.Sprintf("unsupported Content-Type %q: send a SOAP 1.1 envelope as text/xml; charset=utf-8",
				contract.Echo(media)),
		}
	}
	codings, problem := contentCodings(h), ""
	for _, coding := range codings {
		if problem == "" && !negotiate.IsGzip([]byte(coding)) {
			problem = fmt.Sprintf("unsupported Content-Encoding %q: compress the envelope with gzip, once, or not at all",
				contract.Echo(coding))
		}
	}
	if len(codings) > 1 && problem == "" {
		problem = fmt.Sprintf("the Content-Encoding names gzip %d times: compress the envelope once", len(codings))
	}
	if problem != "" {
		return &contract.APIError{Code: contract.UnsupportedContentType, Parameter: fasthttp.HeaderContentEncoding, Description: problem}
	}
	if int64(h.ContentLength()) > maxBody {
		return tooLarge(maxBody)
	}
	return nil
}

const soap12 = "application/soap+xml"

// checkContent applies the rules for the header that result in a fault if violated.
func checkContent(h *fasthttp.RequestHeader) *failure {
	media, charset := contentType(h)
	if media == soap12 {
		const reason = "the Content-Type " + soap12 + " is for SOAP 1.2: this service supports SOAP 1.1, with text/xml"
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

// contentCodings returns the content codings except identity.
func contentCodings(h *fasthttp.RequestHeader) (codings []string) {
	for _, value := range h.PeekAll(fasthttp.HeaderContentEncoding) {
		for coding := range bytes.SplitSeq(value, []byte{','}) {
			coding := strings.TrimSpace(string(coding))
			if coding != "" && !strings.EqualFold(coding, "identity") {
				codings = append(codings, coding)
			}
		}
	}
	return codings
}

// minCompressed is the size from which a response is compressed. Smaller ones fit into one packet.
const minCompressed = 1 << 10

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// send responds with an envelope, compressed if the client accepts that.
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
