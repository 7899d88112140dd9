package api

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// identity is what an entry with a certificate has: the fingerprint of the certificate, or that of
// a CA, for whose certificates the subject may be given.
type identity struct {
	fingerprint [sha256.Size]byte
	subject     string // empty: any
}

// certified is the key of the certificate of a connection. It is found once, and again
// when the keys or the CA certificates change, so that a withdrawn certificate is unknown
// immediately on open connections too.
type certified struct {
	ring   *ring // nil: not found yet
	cas    *x509.CertPool
	until  time.Time // the end of the certificate's validity, or zero
	key    *key
	apiErr *contract.APIError // why there is no key
}

// identify finishes check for a request without a key: the certificate of its connection, which
// headerReceived does not know, may stand for one.
func (s *Server) identify(x *exchange, c *conn, h *fasthttp.RequestHeader) {
	if !x.anonymous {
		return
	}
	x.anonymous = false
	defer func() {
		if p := recover(); p != nil {
			x.apiErr = s.panicked(p, x.trace.String())
		}
	}()
	ring, cas, id := s.keys.now.Load(), s.certificate.now.Load().clients, &c.certified
	if id.ring != ring || id.cas != cas || !id.until.IsZero() && x.start.After(id.until) {
		*id = certified{ring: ring, cas: cas}
		id.find(c, x.start)
	}
	if x.key, x.apiErr = id.key, id.apiErr; x.key != nil && x.key.expired() {
		x.key, x.apiErr = nil, unauthenticated("the entry of the client certificate in the keys file has expired")
	}
	if x.key != nil {
		x.apiErr = s.admit(x, h)
	}
}

// find looks for the certificate of the connection in the keys.
func (id *certified) find(c *conn, now time.Time) {
	var presented []*x509.Certificate
	if t, ok := c.Conn.(*tls.Conn); ok {
		presented = t.ConnectionState().PeerCertificates
	}
	if len(presented) == 0 {
		id.apiErr = unauthenticated("the request needs one header Authorization: apiKey <API_KEY>, or a connection with a client certificate")
		return
	}
	leaf := presented[0]
	id.until = leaf.NotAfter
	others := x509.NewCertPool()
	for _, other := range presented[1:] {
		others.AddCert(other)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: id.cas, Intermediates: others, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil { // it was valid at the handshake
		id.apiErr = unauthenticated(fmt.Sprintf("the client certificate with %s is no longer accepted: %v", describe(leaf), err))
		return
	}
	for _, chain := range chains {
		until := leaf.NotAfter
		for _, certificate := range chain {
			if certificate.NotAfter.Before(until) {
				until = certificate.NotAfter
			}
		}
		for _, certificate := range chain {
			fingerprint := sha256.Sum256(certificate.Raw)
			for _, subject := range []string{SubjectOf(leaf), ""} {
				if id.key = id.ring.certificates[identity{fingerprint, subject}]; id.key != nil {
					id.until = until
					keyExpiry.WithLabelValues(id.key.entry.Name).Set(float64(id.key.certificateExpiry(leaf).Unix()))
					return
				}
			}
		}
	}
	id.apiErr = unauthenticated(fmt.Sprintf("unknown client certificate with %s: "+
		"the operator can add its fingerprint, or that of its CA, to the keys file; or send a key", describe(leaf)))
}

// certificateExpiry returns when the certificate or its entry expires, whichever is earlier.
func (k *key) certificateExpiry(leaf *x509.Certificate) time.Time {
	if !k.expires.IsZero() && k.expires.Before(leaf.NotAfter) {
		return k.expires
	}
	return leaf.NotAfter
}

// SubjectOf returns the subject of a certificate in the order of RFC 2253.
func SubjectOf(c *x509.Certificate) string {
	var subject pkix.RDNSequence
	_, _ = asn1.Unmarshal(c.RawSubject, &subject) // x509 has parsed it
	return subject.String()
}

func describe(c *x509.Certificate) string {
	return fmt.Sprintf("the subject %q and the SHA-256 fingerprint %x", contract.Echo(SubjectOf(c)), sha256.Sum256(c.Raw))
}

// refusedLogged is the time of the last log line of refused, so that clients cannot fill the log.
var refusedLogged atomic.Int64

// refused counts and logs that a handshake failed because of the client's certificate.
func (s *Server) refused(c *conn, err *tls.CertificateVerificationError) {
	counter := refusedInvalid
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		counter = refusedExpired // or not valid yet
	} else if errors.As(err, new(x509.UnknownAuthorityError)) {
		counter = refusedUnknownCA
	}
	counter.Inc()
	last, now := refusedLogged.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) < refusedPause || !refusedLogged.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	leaf := err.UnverifiedCertificates[0]
	s.log.Warn().Err(err.Err).Str("remote", c.RemoteAddr().String()).Str("subject", contract.Echo(SubjectOf(leaf))).
		Str("sha256", fmt.Sprintf("%x", sha256.Sum256(leaf.Raw))).Time("expires", leaf.NotAfter).
		Msg("refused a client certificate; others are only counted for the next 10 s")
}

const refusedPause = 10 * time.Second
