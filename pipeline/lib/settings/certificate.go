package settings

import (
	"crypto/x509"
	"fmt"
	"time"
)

// CheckCertificate returns an error that starts with a verb, such as "expired at", unless the
// certificate is valid at a time.
func CheckCertificate(c *x509.Certificate, at time.Time) error {
	switch {
	case at.After(c.NotAfter):
		return fmt.Errorf("expired at %s", c.NotAfter.UTC().Format(time.RFC3339))
	case at.Before(c.NotBefore):
		return fmt.Errorf("is not valid before %s, according to this machine's clock", c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}
