package routing

import (
	"errors"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/sources/internal/upload"
)

// receive reads the whole body, as it is sent, on the connection's own goroutine.
// The error is a *batch.Refusal.
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
			var refusal *batch.Refusal
			if space, refusal = body.space(s.cfg.MaxBodyBytes); refusal != nil {
				return refusal
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
			return batch.Refuse(batch.InvalidParameter, fmt.Sprintf("the body breaks off after %d bytes", len(body.bytes)))
		default:
			return err
		}
	}
}

func tooLarge(limit int64) *batch.Refusal {
	return batch.Refuse(batch.BodyTooLarge, fmt.Sprintf("the body is larger than %d bytes: send fewer geometries in one request", limit))
}
