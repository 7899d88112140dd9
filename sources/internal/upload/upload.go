// Package upload receives request bodies from clients that may be slow or hostile, or disconnect.
package upload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

// Limits bounds slow clients. The limits are constants that tests vary.
type Limits struct {
	ReceiveTimeout time.Duration // time to receive a whole body
	// minimum average rate of a body since its first byte; 0: none
	MinBytesPerSecond int64
	RateGrace         time.Duration // time before MinBytesPerSecond applies
}

// DefaultLimits returns a timeout of a minute and a minimum of 4 KiB/s after five seconds.
func DefaultLimits() Limits {
	return Limits{ReceiveTimeout: time.Minute, MinBytesPerSecond: 4 << 10, RateGrace: 5 * time.Second}
}

// Receiver receives the bodies of one endpoint.
type Receiver struct {
	Limits
	MaxBytes int64 // maximum size of a body, as sent

	TooLarge  *contract.APIError // error for a larger body
	Truncated contract.Code      // error code if the client disconnects before the end of the body

	Slots *admission.Quotas // one slot for each request whose body has begun

	Bytes   metrics.Counter  // counts received bytes
	Seconds metrics.Observer // observes the time to receive a body
	Aborted metrics.Counter  // counts clients that disconnect during a body
}

// Buffer receives a body.
type Buffer interface {
	// Space returns a slice for the next part of the body, of at least one byte.
	Space() ([]byte, error)
	// Wrote is called after n bytes have been written to the slice that Space returned last. An
	// error stops receiving.
	Wrote(n int) error
	// End is called last, with io.EOF for a complete body, or else with a *contract.APIError:
	// TooLarge, RequestTimeout for a client that is too slow, Truncated, or InvalidParameter for
	// malformed chunks. Receive returns the result of End, or the error itself if no byte of the
	// body has arrived. End is not called after an error of Space or Wrote.
	End(err error) error
}

// Receive reads the body of a request. It acquires a slot when the first byte arrives. If it
// returns nil, the caller must release the slot.
func (r *Receiver) Receive(ctx *fasthttp.RequestCtx, client string, buf Buffer) (err error) {
	b := body{
		Receiver: r, start: time.Now(), conn: ctx.Conn(),
		stream: ctx.RequestBodyStream(), declared: ctx.Request.Header.ContentLength(),
	}
	defer func() {
		r.Bytes.Add(float64(b.received))
		metrics.Since(r.Seconds, b.start)
	}()
	n, end := 0, error(nil)
	for n == 0 && end == nil {
		n, end = b.read(b.first[:])
	}
	if n == 0 && end != io.EOF {
		_ = buf.End(end)
		return end // even if End accepts it: there is no slot
	}
	if apiErr := r.Slots.Acquire(client, 1); apiErr != nil {
		return apiErr
	}
	defer func() {
		if err != nil {
			r.Slots.Release(client, 1)
		}
	}()
	if n > 0 {
		space, err := buf.Space()
		if err != nil {
			return err
		}
		if err := buf.Wrote(copy(space, b.first[:])); err != nil {
			return err
		}
	}
	for end == nil {
		var space []byte
		if b.received < r.MaxBytes {
			if space, err = buf.Space(); err != nil {
				return err
			}
		}
		n, end = b.read(space)
		if err = buf.Wrote(n); err != nil {
			return err
		}
	}
	return buf.End(end)
}

type body struct {
	*Receiver
	start    time.Time
	received int64
	conn     net.Conn
	stream   io.Reader // nil: the request has neither a length nor chunks
	declared int       // Content-Length, negative without one
	due      time.Time // deadline of the current read
	first    [1]byte
}

// read reads a part of the body. Its deadline depends on the rate so far. io.EOF means that the
// body is complete. At the size limit, read only checks that there are no more bytes.
func (b *body) read(p []byte) (n int, err error) {
	if b.stream == nil {
		return 0, io.EOF
	}
	full := b.received == b.MaxBytes
	if full {
		p = b.first[:]
	}
	// At the deadline, the timeout ends or the average rate falls below the minimum.
	limit := b.ReceiveTimeout
	if b.MinBytesPerSecond > 0 {
		earned := time.Duration(float64(b.received) / float64(b.MinBytesPerSecond) * float64(time.Second))
		limit = min(limit, b.RateGrace+earned)
	}
	b.due = b.start.Add(limit)
	_ = b.conn.SetReadDeadline(b.due)
	n, err = b.stream.Read(p[:min(int64(len(p)), max(1, b.MaxBytes-b.received))])
	if full && n > 0 {
		return 0, b.TooLarge
	}
	b.received += int64(n)
	if err != nil {
		err = b.end(err)
	}
	return n, err
}

// end returns io.EOF if the body is complete, or an error that explains err. fasthttp returns
// io.EOF even if a client disconnected before the declared length, and hides a timeout within the
// header of a chunk, so the clock decides.
func (b *body) end(err error) error {
	late := !time.Now().Before(b.due)
	switch {
	case err == io.EOF && b.whole():
		return io.EOF
	case late && time.Since(b.start) >= b.ReceiveTimeout:
		return contract.NewError(contract.RequestTimeout, fmt.Sprintf("the body did not arrive within %v", b.ReceiveTimeout))
	case late:
		return contract.NewError(contract.RequestTimeout, fmt.Sprintf("the body arrived slower than %d bytes per second", b.MinBytesPerSecond))
	case b.declared < 0 && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*net.OpError)):
		return contract.NewParameterError(contract.InvalidParameter, fasthttp.HeaderTransferEncoding, "malformed or incomplete chunks")
	}
	b.Aborted.Inc()
	return contract.NewError(b.Truncated, fmt.Sprintf("unexpected end of body after %d bytes", b.received))
}

// whole reports whether the body is complete after io.EOF. A chunked stream also returns io.EOF if
// the client disconnected between two chunks, but only then does another read access the
// connection, and fail because the deadline is in the past.
func (b *body) whole() bool {
	if b.declared >= 0 {
		return b.received == int64(b.declared)
	}
	_ = b.conn.SetReadDeadline(time.Unix(1, 0))
	_, err := b.stream.Read(b.first[:])
	return err == io.EOF
}
