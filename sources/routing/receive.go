package routing

import (
	"errors"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/upload"
)

// receive reads the whole body, as it is sent, on the connection's own goroutine.
// The error is a *contract.APIError.
func (s *Service) receive(ctx *fasthttp.RequestCtx, body *body) error {
	u := upload.New(ctx, upload.Limits{
		Bytes: s.cfg.MaxBodyBytes, Timeout: s.cfg.ReceiveTimeout,
		MinBytesPerSecond: s.cfg.MinBytesPerSecond, RateGrace: s.cfg.RateGrace,
	})
	defer func() {
		bodyBytes.Add(len(body.bytes))
		receiveSeconds.UpdateDuration(u.Start)
	}()
	for {
		var space []byte
		if !u.Full() {
			var apiErr *contract.APIError
			if space, apiErr = body.space(s.cfg.MaxBodyBytes); apiErr != nil {
				return apiErr
			}
		}
		n, err := u.Read(space)
		body.wrote(n)
		switch {
		case err == nil:
		case err == io.EOF:
			return nil
		case errors.Is(err, upload.ErrTooLarge):
			return tooLarge(s.cfg.MaxBodyBytes)
		case errors.Is(err, upload.ErrBrokenOff):
			aborted.Inc()
			return contract.NewError(contract.InvalidParameter, fmt.Sprintf("the body breaks off after %d bytes", len(body.bytes)))
		default:
			return err
		}
	}
}

func tooLarge(limit int64) *contract.APIError {
	return contract.NewError(contract.BodyTooLarge, fmt.Sprintf("the body is larger than %d bytes: send fewer geometries in one request", limit))
}
