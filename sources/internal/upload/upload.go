// Package upload reads the bodies of requests from clients that may be slow,
// hostile or gone. It is what the endpoints that take bodies share.
package upload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// Limits of one body.
type Limits struct {
	Bytes             int64         // as sent
	Timeout           time.Duration // for all of it
	MinBytesPerSecond int64         // on the average since its start; 0: none
	RateGrace         time.Duration // for how long the average is not looked at
}

// What else may be wrong at a body's end.
var (
	ErrTooLarge  = errors.New("the body is larger than its limit")
	ErrBrokenOff = errors.New("the client went away before the end of the body")
)

// Body is one request's body on its way in. It belongs to the goroutine of its
// connection.
type Body struct {
	Start    time.Time
	Received int64 // bytes

	limits   Limits
	conn     net.Conn
	stream   io.Reader // nil: the request has neither a length nor chunks
	declared int       // Content-Length, negative without one
	due      time.Time // when the read under way gives up
}

// New begins to receive the body of a request.
func New(ctx *fasthttp.RequestCtx, limits Limits) Body {
	return Body{
		Start: time.Now(), limits: limits, conn: ctx.Conn(),
		stream: ctx.RequestBodyStream(), declared: ctx.Request.Header.ContentLength(),
	}
}

// Full tells that the limit is reached: the next Read only finds out whether that
// was all, and needs no space.
func (b *Body) Full() bool { return b.Received == b.limits.Bytes }

// Read waits no longer than the client's pace allows. io.EOF means that the body
// is whole. Other errors are ErrTooLarge, ErrBrokenOff, or a *contract.APIError:
// RequestTimeout for a client that is too slow, InvalidParameter for chunks that are none.
func (b *Body) Read(p []byte) (n int, err error) {
	switch {
	case b.stream == nil:
		return 0, io.EOF
	case b.Full():
		return 0, b.beyond()
	}
	n, err = b.next(p[:min(int64(len(p)), b.limits.Bytes-b.Received)])
	b.Received += int64(n)
	if err != nil {
		err = b.end(err)
	}
	return n, err
}

func (b *Body) next(p []byte) (int, error) {
	b.due = b.deadline()
	_ = b.conn.SetReadDeadline(b.due)
	return b.stream.Read(p)
}

// deadline is when the next byte has to be here: the end of the timeout, or the
// moment at which the average falls below the minimum rate.
func (b *Body) deadline() time.Time {
	limit := b.limits.Timeout
	if b.limits.MinBytesPerSecond > 0 {
		earned := time.Duration(float64(b.Received) / float64(b.limits.MinBytesPerSecond) * float64(time.Second))
		limit = min(limit, b.limits.RateGrace+earned)
	}
	return b.Start.Add(limit)
}

// beyond tells a body of exactly the limit from a larger one.
func (b *Body) beyond() error {
	var probe [1]byte
	n, err := b.next(probe[:])
	if n > 0 {
		return ErrTooLarge
	}
	return b.end(err)
}

// end sorts how the stream ended. fasthttp gives io.EOF also where a client went
// away before the declared length, and hides a timeout within a chunk's head,
// so that the clock has to tell.
func (b *Body) end(err error) error {
	switch {
	case err == io.EOF && b.whole():
		return io.EOF
	case !time.Now().Before(b.due):
		return b.tooSlow()
	case b.declared < 0 && !brokeOff(err):
		return &contract.APIError{Code: contract.InvalidParameter, Description: "the body's chunks are malformed or break off", Parameter: fasthttp.HeaderTransferEncoding}
	}
	return ErrBrokenOff
}

// brokeOff tells an end of the connection from chunks that do not parse.
func brokeOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// whole tells whether io.EOF stands for the end of the body. A chunked stream gives
// it also where the client went away between two chunks; but then it asks the
// connection when it is read again, and the deadline in the past shows that.
func (b *Body) whole() bool {
	if b.declared >= 0 {
		return b.Received == int64(b.declared)
	}
	var probe [1]byte
	_ = b.conn.SetReadDeadline(time.Unix(1, 0))
	_, err := b.stream.Read(probe[:])
	return err == io.EOF
}

func (b *Body) tooSlow() *contract.APIError {
	if time.Since(b.Start) >= b.limits.Timeout {
		return contract.NewError(contract.RequestTimeout, fmt.Sprintf("the body did not come within %v", b.limits.Timeout))
	}
	return contract.NewError(contract.RequestTimeout, fmt.Sprintf("the body came slower than %d bytes per second", b.limits.MinBytesPerSecond))
}
