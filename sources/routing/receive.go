package routing

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
)

// receive reads the whole body, as it is sent, on the connection's own goroutine.
// The error is a *batch.Refusal.
func (s *Service) receive(ctx *fasthttp.RequestCtx, body *body) error {
	r := receiving{
		cfg: s.cfg, conn: ctx.Conn(), stream: ctx.RequestBodyStream(), body: body, start: time.Now(),
		declared: ctx.Request.Header.ContentLength(),
	}
	defer func() {
		bodyBytes.Add(len(body.bytes))
		receiveSeconds.UpdateDuration(r.start)
	}()
	if r.stream == nil { // neither a length nor chunks: no body
		return nil
	}
	return r.run()
}

// receiving is one body on its way in.
type receiving struct {
	cfg      Config
	conn     net.Conn
	stream   io.Reader
	body     *body
	start    time.Time
	due      time.Time // when the read under way gives up
	declared int       // Content-Length, negative without one
}

func (r *receiving) run() error {
	for {
		if int64(len(r.body.bytes)) == r.cfg.MaxBodyBytes {
			return r.beyond()
		}
		space := r.body.space(r.cfg.MaxBodyBytes)
		if space == nil {
			return batch.Unavailable("the memory for requests is full: try again in a moment", time.Second)
		}
		n, err := r.read(space)
		r.body.wrote(n)
		if err != nil {
			return r.ended(err)
		}
	}
}

// read waits no longer than the client's pace allows.
func (r *receiving) read(p []byte) (int, error) {
	r.due = r.deadline()
	_ = r.conn.SetReadDeadline(r.due)
	return r.stream.Read(p)
}

// deadline is when the next byte has to be here: the end of the receive timeout,
// or the moment at which the average falls below the minimum rate.
func (r *receiving) deadline() time.Time {
	limit := r.cfg.ReceiveTimeout
	if r.cfg.MinBytesPerSecond > 0 {
		earned := time.Duration(float64(len(r.body.bytes)) / float64(r.cfg.MinBytesPerSecond) * float64(time.Second))
		limit = min(limit, r.cfg.RateGrace+earned)
	}
	return r.start.Add(limit)
}

// beyond tells a body of exactly the limit from a larger one.
func (r *receiving) beyond() error {
	var probe [1]byte
	if n, err := r.read(probe[:]); n == 0 {
		return r.ended(err)
	}
	return tooLarge(r.cfg.MaxBodyBytes)
}

// ended sorts how the stream ended. fasthttp gives io.EOF also where a client went
// away before the declared length, and hides a timeout within a chunk's head,
// so that the clock has to tell.
func (r *receiving) ended(err error) error {
	switch {
	case err == io.EOF && r.whole():
		return nil
	case !time.Now().Before(r.due):
		return r.tooSlow()
	case r.declared < 0 && !brokeOff(err):
		return &batch.Refusal{Code: batch.InvalidParameter, Description: "the body's chunks are malformed or break off", Parameter: fasthttp.HeaderTransferEncoding}
	}
	aborted.Inc()
	return batch.Refuse(batch.InvalidParameter, fmt.Sprintf("the body breaks off after %d bytes", len(r.body.bytes)))
}

// brokeOff tells an end of the connection from chunks that do not parse.
func brokeOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// whole tells whether io.EOF stands for the end of the body. A chunked stream gives
// it also where the client went away between two chunks; but then it asks the
// connection when it is read again, and the deadline in the past shows that.
func (r *receiving) whole() bool {
	if r.declared >= 0 {
		return len(r.body.bytes) == r.declared
	}
	var probe [1]byte
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	_, err := r.stream.Read(probe[:])
	return err == io.EOF
}

func (r *receiving) tooSlow() *batch.Refusal {
	if time.Since(r.start) >= r.cfg.ReceiveTimeout {
		return batch.Refuse(batch.RequestTimeout, fmt.Sprintf("the body did not come within %v", r.cfg.ReceiveTimeout))
	}
	return batch.Refuse(batch.RequestTimeout, fmt.Sprintf("the body came slower than %d bytes per second", r.cfg.MinBytesPerSecond))
}

func tooLarge(limit int64) *batch.Refusal {
	return batch.Refuse(batch.BodyTooLarge, fmt.Sprintf("the body is larger than %d bytes: send fewer geometries in one request", limit))
}
