package ingest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
)

// receive reads the compressed body on the connection's own goroutine. After nil
// body holds it whole, or as far as it came until a limit was met: then the
// refusal stands at body's end, because an error earlier in the stream wins
// (decisions.md 1.1). Any other end means that nothing is to be submitted.
func (e *Endpoint) receive(ctx *fasthttp.RequestCtx, body *blocks) error {
	r := receiving{
		cfg: e.cfg, conn: ctx.Conn(), stream: ctx.RequestBodyStream(), body: body, start: time.Now(),
		declared: ctx.Request.Header.ContentLength(), gzip: declaresGzip(&ctx.Request.Header),
	}
	defer func() {
		bodyBytes.Add(body.written)
		receiveSeconds.UpdateDuration(r.start)
	}()
	if r.stream == nil { // neither a length nor chunks: no body
		return r.complete()
	}
	return r.run()
}

// receiving is one body on its way in.
type receiving struct {
	cfg      Config
	conn     net.Conn
	stream   io.Reader
	body     *blocks
	start    time.Time
	due      time.Time // when the read under way gives up
	declared int       // Content-Length, negative without one
	gzip     bool      // Content-Encoding says so
}

func (r *receiving) run() error {
	for {
		if int64(r.body.written) == r.cfg.MaxCompressedBytes {
			return r.beyond()
		}
		space := r.body.space()
		if space == nil {
			return batch.Unavailable("the memory for request bodies is full: try again in a moment", time.Second)
		}
		space = space[:min(int64(len(space)), r.cfg.MaxCompressedBytes-int64(r.body.written))]
		n, err := r.read(space)
		r.body.wrote(n)
		if !r.gzip && !r.body.starts(0x1f, 0x8b) {
			return noGzip()
		}
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
		earned := time.Duration(float64(r.body.written) / float64(r.cfg.MinBytesPerSecond) * float64(time.Second))
		limit = min(limit, r.cfg.RateGrace+earned)
	}
	return r.start.Add(limit)
}

// beyond tells a body of exactly the limit from a larger one.
func (r *receiving) beyond() error {
	var probe [1]byte
	n, err := r.read(probe[:])
	if n > 0 {
		r.body.end = tooLarge(r.cfg.MaxCompressedBytes)
		return nil
	}
	return r.ended(err)
}

// ended sorts how the stream ended. fasthttp gives io.EOF also where a client went
// away before the declared length, and hides a timeout within a chunk's head,
// so that the clock has to tell.
func (r *receiving) ended(err error) error {
	switch {
	case err == io.EOF && r.whole():
		return r.complete()
	case !time.Now().Before(r.due):
		r.body.end = r.tooSlow()
		return nil
	case r.declared < 0 && !brokeOff(err):
		return &batch.Refusal{Code: batch.InvalidParameter, Description: "the body's chunks are malformed or break off", Parameter: fasthttp.HeaderTransferEncoding}
	}
	aborted.Inc()
	return batch.Refuse(batch.InvalidGzip, fmt.Sprintf("the body breaks off after %d bytes", r.body.written))
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
		return r.body.written == r.declared
	}
	var probe [1]byte
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	_, err := r.stream.Read(probe[:])
	return err == io.EOF
}

// complete is the end of a whole body.
func (r *receiving) complete() error {
	if !r.gzip && r.body.written < 2 {
		return noGzip()
	}
	return nil
}

func (r *receiving) tooSlow() *batch.Refusal {
	if time.Since(r.start) >= r.cfg.ReceiveTimeout {
		return batch.Refuse(batch.RequestTimeout, fmt.Sprintf("the body did not come within %v", r.cfg.ReceiveTimeout))
	}
	return batch.Refuse(batch.RequestTimeout, fmt.Sprintf("the body came slower than %d bytes per second", r.cfg.MinBytesPerSecond))
}

func noGzip() *batch.Refusal {
	return gzipRequired("the body has to be compressed with gzip, and does not begin like that")
}
