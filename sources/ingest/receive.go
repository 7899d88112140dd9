package ingest

import (
	"errors"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/upload"
)

// receive reads the compressed body on the connection's own goroutine. After nil
// body holds it whole, or as far as it came until a limit was met: then the
// refusal stands at body's end, because an error earlier in the stream wins
// (contract 1.1). Any other end means that nothing is to be submitted.
func (e *Endpoint) receive(ctx *fasthttp.RequestCtx, body *blocks) error {
	u := upload.New(ctx, upload.Limits{
		Bytes: e.cfg.MaxCompressedBytes, Timeout: e.cfg.ReceiveTimeout,
		MinBytesPerSecond: e.cfg.MinBytesPerSecond, RateGrace: e.cfg.RateGrace,
	})
	defer func() {
		bodyBytes.Add(body.written)
		receiveSeconds.UpdateDuration(u.Start)
	}()
	declared := declaresGzip(&ctx.Request.Header)
	for {
		var space []byte
		if !u.Full() {
			if space = body.space(); space == nil {
				return memoryFull()
			}
		}
		n, err := u.Read(space)
		body.wrote(n)
		if !declared && !(body.starts(0x1f, 0x8b) && (err != io.EOF || body.written >= 2)) {
			return gzipRequired("the body has to be compressed with gzip, and does not begin like that")
		}
		if err != nil {
			return e.ended(err, body)
		}
	}
}

// ended sorts the ways in which a body ends.
func (e *Endpoint) ended(err error, body *blocks) error {
	var apiErr *contract.APIError
	switch {
	case err == io.EOF:
		return nil
	case errors.Is(err, upload.ErrTooLarge):
		body.end = tooLarge(e.cfg.MaxCompressedBytes)
		return nil
	case errors.As(err, &apiErr) && apiErr.Code == contract.RequestTimeout:
		body.end = apiErr
		return nil
	case errors.Is(err, upload.ErrBrokenOff):
		aborted.Inc()
		return contract.NewError(contract.InvalidGzip, fmt.Sprintf("the body breaks off after %d bytes", body.written))
	}
	return err
}
