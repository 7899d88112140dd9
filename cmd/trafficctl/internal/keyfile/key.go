package keyfile

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Prefix identifies a key to people and to secret scanners.
const Prefix = "tfd_"

// Rights are the rights that a key can have.
var Rights = []string{"ingest", "forecast", "routing", "admin"}

// NewKey returns a key of 256 random bits. It cannot be guessed, so a plain digest protects it as well as
// a slow one would.
func NewKey() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return Prefix + base64.RawURLEncoding.EncodeToString(secret)
}

// Digest returns the SHA-256 digest of a key in hex.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Entry is one key in the file. Zero means no rate limit and no expiry.
type Entry struct {
	Name              string    `yaml:"name"`
	SHA256            string    `yaml:"sha256"`
	ProductInstance   string    `yaml:"product_instance"`
	Rights            []string  `yaml:"rights,flow"`
	Timezone          string    `yaml:"timezone,omitempty"`
	RequestsPerSecond float64   `yaml:"requests_per_second,omitempty"`
	ItemsPerSecond    float64   `yaml:"items_per_second,omitempty"`
	Expires           time.Time `yaml:"expires,omitempty"`
}

// Validate returns an error for the first invalid field, by its flag's name.
func (e Entry) Validate() error {
	switch {
	case strings.TrimSpace(e.Name) == "":
		return errors.New("--name is required: logs and metrics show it instead of the key")
	case strings.TrimSpace(e.ProductInstance) == "":
		return errors.New("--product-instance is required: the key's measurements belong to it")
	case len(e.Rights) == 0:
		return fmt.Errorf("--rights is required: list some of %v", Rights)
	case !validRate(e.RequestsPerSecond):
		return fmt.Errorf("--requests-per-second %g must be 0 for no limit, or at least %g", e.RequestsPerSecond, minRate)
	case !validRate(e.ItemsPerSecond):
		return fmt.Errorf("--items-per-second %g must be 0 for no limit, or at least %g", e.ItemsPerSecond, minRate)
	}
	for _, right := range e.Rights {
		if !slices.Contains(Rights, right) {
			return fmt.Errorf("--rights %q must be one of %v", right, Rights)
		}
	}
	if _, err := time.LoadLocation(e.Timezone); err != nil || e.Timezone == "Local" {
		return fmt.Errorf("--timezone %q must be an IANA time zone such as UTC or Europe/Copenhagen", e.Timezone)
	}
	return nil
}

// minRate is the lowest limit that the daemon accepts.
const minRate = 0.001

func validRate(r float64) bool { return r == 0 || (r >= minRate && !math.IsInf(r, 0)) }
