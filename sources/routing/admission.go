package routing

import (
	"io"
	"sync/atomic"
)

// admission bounds how many requests are under way and how much memory their
// bodies and answers hold.
type admission struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
}

func newAdmission(cfg Config) *admission {
	admissionRequestsLimit.Set(float64(cfg.AdmissionRequests))
	admissionBytesLimit.Set(float64(cfg.AdmissionBytes))
	return &admission{maxRequests: cfg.AdmissionRequests, maxBytes: cfg.AdmissionBytes}
}

// enter takes a request in, unless all places are taken, or the memory is: then
// its body could not be received.
func (a *admission) enter() bool {
	if a.bytes.Load()+firstBytes > a.maxBytes {
		return false
	}
	if a.requests.Add(1) > a.maxRequests {
		a.requests.Add(-1)
		return false
	}
	admissionRequests.Inc()
	return true
}

func (a *admission) leave() {
	a.requests.Add(-1)
	admissionRequests.Dec()
}

// hold counts n bytes more, unless they are too many.
func (a *admission) hold(n int) bool {
	if a.bytes.Add(int64(n)) > a.maxBytes {
		a.bytes.Add(-int64(n))
		return false
	}
	admissionBytes.Add(float64(n))
	return true
}

// exceed counts n bytes of an answer. It is there already, so this may go over the
// limit; until it is below it again no body is received, and no answer made.
func (a *admission) exceed(n int) {
	a.bytes.Add(int64(n))
	admissionBytes.Add(float64(n))
}

// exceeded tells whether answers wait for their clients that are more than the limit.
func (a *admission) exceeded() bool { return a.bytes.Load() > a.maxBytes }

func (a *admission) release(n int) {
	a.bytes.Add(-int64(n))
	admissionBytes.Add(-float64(n))
}

// firstBytes is how much of a body is received into at first: most requests are
// smaller. Nothing is taken for a length that is only declared.
const firstBytes = 4 << 10

// body is a request's body as far as it was received.
type body struct {
	admission *admission
	bytes     []byte
}

// space gives room for more, at most up to a limit that is not reached yet; nil
// where the memory is full.
func (b *body) space(limit int64) []byte {
	if len(b.bytes) == cap(b.bytes) {
		size := int(min(max(firstBytes, 2*int64(cap(b.bytes))), limit))
		if !b.admission.hold(size) {
			return nil
		}
		larger := append(make([]byte, 0, size), b.bytes...)[:len(b.bytes)]
		b.admission.release(cap(b.bytes))
		b.bytes = larger
	}
	return b.bytes[len(b.bytes):cap(b.bytes)]
}

func (b *body) wrote(n int) { b.bytes = b.bytes[:len(b.bytes)+n] }

func (b *body) free() {
	b.admission.release(cap(b.bytes))
	b.bytes = nil
}

// answer is a finished answer on its way to the client. Its memory counts until
// the server closes it.
type answer struct {
	admission *admission
	bytes     []byte
	at        int
}

func newAnswer(a *admission, bytes []byte) *answer {
	a.exceed(cap(bytes))
	return &answer{admission: a, bytes: bytes}
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	if a.at == len(a.bytes) {
		return 0, io.EOF
	}
	n := copy(p, a.bytes[a.at:])
	a.at += n
	return n, nil
}

// Close implements io.Closer.
func (a *answer) Close() error {
	a.admission.release(cap(a.bytes))
	a.bytes, a.at = nil, 0
	return nil
}
