package ingest

import (
	"bytes"
	"fmt"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

const (
	idempotencyHeader = "Idempotency-Key"
	maxKeyLen         = 128
	multipart         = "multipart/"
)

// checkHeader applies the rules of contract 1.1 that need only the header.
func checkHeader(h *fasthttp.RequestHeader, maxBody int64) *contract.APIError {
	if media := h.ContentType(); len(media) >= len(multipart) && bytes.EqualFold(media[:len(multipart)], []byte(multipart)) {
		return contract.NewParameterError(contract.UnsupportedContentType, fasthttp.HeaderContentType,
			"multipart bodies are not supported: send the gzip-compressed JSON as the body itself")
	}
	if _, apiErr := checkEncoding(h); apiErr != nil {
		return apiErr
	}
	if n := int64(h.ContentLength()); n > maxBody {
		return tooLarge(maxBody)
	}
	return checkIdempotencyKey(h)
}

// checkEncoding accepts a Content-Encoding of gzip, or none. declared reports whether the header
// declares gzip; if it does not, the body must begin with gzip's magic number.
func checkEncoding(h *fasthttp.RequestHeader) (declared bool, _ *contract.APIError) {
	times, other := negotiate.CountGzip(h.PeekAll(fasthttp.HeaderContentEncoding), "")
	if other != nil {
		return false, gzipRequired(fmt.Sprintf("unsupported Content-Encoding %q: compress the body with gzip", contract.Echo(other)))
	}
	if times > 1 {
		return false, gzipRequired(fmt.Sprintf("the Content-Encoding names gzip %d times: compress the body once", times))
	}
	return times == 1, nil
}

func gzipRequired(description string) *contract.APIError {
	return contract.NewParameterError(contract.GzipRequired, fasthttp.HeaderContentEncoding, description)
}

func tooLarge(maxBody int64) *contract.APIError {
	return contract.NewError(contract.BodyTooLarge,
		fmt.Sprintf("the compressed body is larger than %d bytes: send it as several batches", maxBody))
}

// checkIdempotencyKey accepts no key, or one key of 1–128 visible ASCII characters (contract 1.5).
func checkIdempotencyKey(h *fasthttp.RequestHeader) *contract.APIError {
	values := h.PeekAll(idempotencyHeader)
	valid := len(values) <= 1
	for _, key := range values {
		invisible := bytes.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
		valid = valid && len(key) >= 1 && len(key) <= maxKeyLen && !invisible
	}
	if valid {
		return nil
	}
	return contract.NewParameterError(contract.InvalidParameter, idempotencyHeader,
		fmt.Sprintf("the header Idempotency-Key must occur once, with 1 to %d visible ASCII characters", maxKeyLen))
}

func idempotencyKey(h *fasthttp.RequestHeader) string { return string(h.Peek(idempotencyHeader)) }
