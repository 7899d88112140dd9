// Package settings provides checks for the values of settings.
package settings

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
)

// Check returns nil if ok is true, or an error with the formatted text.
func Check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Within returns an error unless low ≤ v ≤ high. reason explains the bounds. If low > high, one of
// them is another setting, whose own error suffices.
func Within[T cmp.Ordered](key string, v, low, high T, reason string) error {
	return Check(v >= low && v <= high || low > high, "%s is %v, must be %v to %v: %s", key, v, low, high, reason)
}

// AtLeast returns an error unless low ≤ v.
func AtLeast[T cmp.Ordered](key string, v, low T, reason string) error {
	return Check(v >= low, "%s is %v, must be at least %v: %s", key, v, low, reason)
}

// Positive returns an error unless v is more than 0.
func Positive[T cmp.Ordered](key string, v T, reason string) error {
	var zero T
	return Check(v > zero, "%s is %v, must be more than 0: %s", key, v, reason)
}

// IsURL reports whether text is an http or https URL with a host.
func IsURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// IsHostPort reports whether address is host:port. The host may be empty; the port is a number or a
// service name.
func IsHostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}
