package routing

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/negotiate"
)

// checkHeader is what the header alone decides.
func checkHeader(h *fasthttp.RequestHeader, maxBody int64) *contract.APIError {
	if media, _ := contentType(h); !isXML(media) {
		return &contract.APIError{
			Code: contract.UnsupportedContentType, Parameter: fasthttp.HeaderContentType,
			Description: fmt.Sprintf("%.64q is not taken: send a SOAP 1.1 envelope as text/xml; charset=utf-8", media),
		}
	}
	if encoding := contentEncoding(h); encoding != "" && !negotiate.IsGzip([]byte(encoding)) {
		return &contract.APIError{
			Code: contract.UnsupportedContentType, Parameter: fasthttp.HeaderContentEncoding,
			Description: fmt.Sprintf("the Content-Encoding %.64q is not taken: compress the envelope with gzip, once, or not at all", encoding),
		}
	}
	if int64(h.ContentLength()) > maxBody {
		return tooLarge(maxBody)
	}
	return nil
}

const soap12 = "application/soap+xml"

// isXML takes SOAP 1.2 too, for a fault that says what is the matter.
func isXML(media string) bool {
	return media == "" || media == "text/xml" || media == "application/xml" || media == soap12
}

// checkContent is what the header decides in a way that SOAP has a fault for.
func checkContent(h *fasthttp.RequestHeader) *failure {
	media, charset := contentType(h)
	if media == soap12 {
		return &failure{class: version, message: "the Content-Type " + soap12 + " is that of SOAP 1.2: this service speaks SOAP 1.1, with text/xml"}
	}
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii", "utf-16", "utf-16le", "utf-16be":
		return nil
	}
	return &failure{class: illegal, context: []string{fasthttp.HeaderContentType}, message: fmt.Sprintf("the charset %.64q is not supported: send UTF-8", charset)}
}

// contentType gives the media type in lower case, and the charset.
func contentType(h *fasthttp.RequestHeader) (media, charset string) {
	value := string(h.ContentType())
	media, parameters, err := mime.ParseMediaType(value)
	if err != nil {
		media, _, _ = strings.Cut(value, ";")
		return strings.ToLower(strings.TrimSpace(media)), ""
	}
	return media, parameters["charset"]
}

// contentEncoding gives all codings that are named; identity is none.
func contentEncoding(h *fasthttp.RequestHeader) string {
	var codings []string
	for _, value := range h.PeekAll(fasthttp.HeaderContentEncoding) {
		for coding := range bytes.SplitSeq(value, []byte{','}) {
			coding := strings.TrimSpace(string(coding))
			if coding != "" && !strings.EqualFold(coding, "identity") {
				codings = append(codings, coding)
			}
		}
	}
	return strings.Join(codings, ", ")
}

func isGzipped(h *fasthttp.RequestHeader) bool { return contentEncoding(h) != "" }

// gunzip unpacks a body. Its errors are refusals.
type gunzip struct{ z *gzip.Reader }

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

func newGunzip(packed []byte) (gunzip, error) {
	g := gunzip{gzipReaders.Get().(*gzip.Reader)}
	if err := g.z.Reset(bytes.NewReader(packed)); err != nil {
		g.free()
		if err == io.EOF { // there is no header at all
			err = io.ErrUnexpectedEOF
		}
		return g, invalidGzip(err)
	}
	return g, nil
}

// Read implements io.Reader.
func (g gunzip) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	return n, invalidGzip(err)
}

func (g gunzip) free() { gzipReaders.Put(g.z) }

func invalidGzip(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &contract.APIError{
		Code: contract.InvalidGzip, Parameter: fasthttp.HeaderContentEncoding,
		Description: fmt.Sprintf("the body is no complete gzip stream, as Content-Encoding says it is: %v", err),
	}
}

// worthPacking is from which size on an answer is compressed: a smaller one goes in
// one packet anyway.
const worthPacking = 1 << 10

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
	return w
}}

// send makes an envelope the answer to a client.
func (s *Service) send(ctx *fasthttp.RequestCtx, client string, envelope []byte, fault bool) {
	h := &ctx.Response.Header
	if fault {
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
	}
	h.SetContentType("text/xml; charset=utf-8")
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	if len(envelope) >= worthPacking && negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		envelope = pack(envelope)
		h.SetContentEncoding("gzip")
	}
	ctx.Response.SetBodyStream(newAnswer(s.memory, client, envelope), len(envelope))
}

func pack(text []byte) []byte {
	var packed bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&packed)
	_, _ = w.Write(text) // into memory: it cannot fail
	_ = w.Close()
	return packed.Bytes()
}
