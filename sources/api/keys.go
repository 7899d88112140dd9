package api

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // IANA time zones even if the machine has none

	"trafficd/schemas/contract"
)

// KeyEntry is one key in the keys file or the configuration (contract 1.4).
type KeyEntry struct {
	Name   string `setting:"name" yaml:"name"`               // for logs; unique
	Client string `setting:"client" yaml:"client,omitempty"` // owner of the key; default: the name
	SHA256 string `setting:"sha256" yaml:"sha256,omitempty"` // hexadecimal digest of the key; empty: certificate
	// SHA-256 fingerprint of a client certificate that needs no key, or of the CA of such certificates
	Certificate string `setting:"certificate" yaml:"certificate,omitempty"`
	// with the fingerprint of a CA: only the certificates with this subject, in the order of RFC 2253,
	// such as CN=acme,O=Acme
	Subject           string   `setting:"subject" yaml:"subject,omitempty"`
	ProductInstance   string   `setting:"product_instance" yaml:"product_instance"`                 // product instance of the client
	Rights            []string `setting:"rights" yaml:"rights,flow"`                                // ingest, forecast, routing
	Timezone          string   `setting:"timezone" yaml:"timezone,omitempty"`                       // IANA name; default UTC
	RequestsPerSecond float64  `setting:"requests_per_second" yaml:"requests_per_second,omitempty"` // rate limit; 0: none
	ItemsPerSecond    float64  `setting:"items_per_second" yaml:"items_per_second,omitempty"`       // rate limit; 0: none
	Expires           string   `setting:"expires" yaml:"expires,omitempty"`                         // RFC 3339; empty: never
}

const (
	maxZones = 8                 // maximum number of time zones with the right forecast, because a layer is kept for each (contract 2)
	minRate  = 0.001             // lowest rate limit
	maxWait  = math.MaxInt64 / 2 // maximum wait for a token; longer times could overflow
)

var rights = map[string]contract.Right{
	"ingest":   contract.RightIngest,
	"forecast": contract.RightForecast,
	"routing":  contract.RightRouting,
}

func rightName(r contract.Right) string {
	for name, right := range rights {
		if right == r {
			return name
		}
	}
	return ""
}

type key struct {
	digest [sha256.Size]byte // with a certificate, its fingerprint or that of its CA
	client *contract.Client
	entry  KeyEntry
	*limits
	expires time.Time // zero: never
}

func (k *key) expired() bool { return !k.expires.IsZero() && !time.Now().Before(k.expires) }

// ring is an immutable set of keys. Its index uses only four bytes of the digest, so that the time
// of a lookup reveals no more than those. The whole digest is compared in constant time.
type ring struct {
	keys         []*key             // in the order of the entries
	byPrefix     map[[4]byte][]*key // without those in certificates
	certificates map[identity]*key  // entries for certificates
	loaded       time.Time
}

// find returns the key with the digest, or nil.
func (r *ring) find(digest [sha256.Size]byte) *key {
	for _, k := range r.byPrefix[[4]byte(digest[:4])] {
		if subtle.ConstantTimeCompare(k.digest[:], digest[:]) == 1 {
			return k
		}
	}
	return nil
}

// same returns the key of r with the same credential as k, or nil.
func (r *ring) same(k *key) *key {
	if k.entry.Certificate != "" {
		return r.certificates[identity{k.digest, k.entry.Subject}]
	}
	return r.find(k.digest)
}

// clients returns the clients of the keys that have not expired.
func (r *ring) clients() (all []*contract.Client) {
	for _, k := range r.keys {
		if !k.expired() {
			all = append(all, k.client)
		}
	}
	return all
}

// newRing returns the keys of the entries. Keys that are also in old, which may be nil, keep the
// levels of their rate limits. The error joins the errors of all entries and names the entries.
func newRing(entries []KeyEntry, old *ring) (*ring, error) {
	r := &ring{byPrefix: make(map[[4]byte][]*key, len(entries)), certificates: map[identity]*key{}, loaded: time.Now()}
	var errs []error
	names, digests := map[string]int{}, map[[3]string]int{}
	for i, e := range entries {
		client, err := e.client()
		if at, ok := names[e.Name]; ok {
			err = errors.Join(err, fmt.Errorf("duplicate name: entry %d has it too", at+1))
		}
		credential := [3]string{strings.ToLower(e.SHA256), plainHex(e.Certificate), e.Subject}
		if at, ok := digests[credential]; ok {
			err = errors.Join(err, fmt.Errorf("duplicate sha256 or certificate: entry %d has it too, and it belongs to one client", at+1))
		}
		names[e.Name], digests[credential] = i, i
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d (name %q): %w", i+1, contract.Echo(e.Name), err))
			continue
		}
		k := &key{client: client, entry: e, limits: &limits{}}
		_, _ = hex.Decode(k.digest[:], []byte(e.SHA256+plainHex(e.Certificate))) // one of them, validated by e.client
		k.expires, _ = time.Parse(time.RFC3339, e.Expires)                       // likewise
		r.keys = append(r.keys, k)
		if e.Certificate != "" {
			r.certificates[identity{k.digest, e.Subject}] = k
			continue
		}
		prefix := [4]byte(k.digest[:4])
		r.byPrefix[prefix] = append(r.byPrefix[prefix], k)
	}
	var zones []string
	for _, c := range r.clients() {
		if c.May(contract.RightForecast) && !slices.Contains(zones, c.Zone.String()) {
			zones = append(zones, c.Zone.String())
		}
	}
	if len(zones) > maxZones {
		errs = append(errs, fmt.Errorf("%d time zones with the right forecast (%s): at most %d, because a layer is kept for each",
			len(zones), strings.Join(zones, ", "), maxZones))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, k := range r.keys { // only now, because an invalid set must not change the limits in use
		if old != nil {
			if before := old.same(k); before != nil {
				k.limits = before.limits
			}
		}
		k.requests.set(k.entry.RequestsPerSecond)
		k.items.set(k.entry.ItemsPerSecond)
	}
	return r, nil
}

// Validate returns an error if the entry is invalid.
func (e KeyEntry) Validate() error {
	_, err := e.client()
	return err
}

func (e KeyEntry) client() (*contract.Client, error) {
	c := &contract.Client{
		Name: e.Name, ProductInstance: e.ProductInstance, Owner: e.ProductInstance + "\x00" + cmp.Or(e.Client, e.Name),
		RequestsPerSecond: e.RequestsPerSecond, ItemsPerSecond: e.ItemsPerSecond,
	}
	if e.Name == "" {
		return nil, errors.New("missing name, which identifies the client in logs and metrics")
	}
	digest, err := hex.DecodeString(e.SHA256 + plainHex(e.Certificate))
	switch wrong := err != nil || len(digest) != sha256.Size; {
	case (e.SHA256 == "") == (e.Certificate == ""):
		return nil, errors.New("either sha256, the digest of a key, or certificate, a fingerprint of a client certificate or its CA, must be set")
	case wrong && e.Certificate == "":
		return nil, errors.New("sha256 must be the 64 hexadecimal digits of the key's SHA-256 digest")
	case wrong:
		return nil, errors.New("certificate must be 64 hexadecimal digits, as openssl x509 -noout -fingerprint -sha256 -in FILE prints them")
	case e.Subject != "" && e.Certificate == "":
		return nil, errors.New("subject requires certificate, the fingerprint of the CA that issues certificates with this subject")
	}
	if e.ProductInstance == "" {
		return nil, errors.New("missing product_instance")
	}
	if len(e.Rights) == 0 {
		return nil, fmt.Errorf("missing rights: list one or more of %s", rightNames())
	}
	for _, name := range e.Rights {
		right, ok := rights[name]
		if !ok {
			return nil, fmt.Errorf("unknown right %q: it must be one of %s", contract.Echo(name), rightNames())
		}
		c.Rights |= right
	}
	if _, err := time.Parse(time.RFC3339, e.Expires); e.Expires != "" && err != nil {
		return nil, fmt.Errorf("expires must be an RFC 3339 time such as 2027-01-01T00:00:00Z, not %q", contract.Echo(e.Expires))
	}
	if c.Zone, err = time.LoadLocation(e.Timezone); err != nil || e.Timezone == "Local" { // the machine's time zone is not the client's
		return nil, fmt.Errorf("unknown time zone %q: use an IANA name such as Europe/Berlin", contract.Echo(e.Timezone))
	}
	return c, errors.Join(checkRate("requests_per_second", e.RequestsPerSecond), checkRate("items_per_second", e.ItemsPerSecond))
}

// plainHex returns a fingerprint without the colons that openssl prints, in lower case.
func plainHex(fingerprint string) string {
	return strings.ToLower(strings.ReplaceAll(fingerprint, ":", ""))
}

func checkRate(name string, rate float64) error {
	if rate == 0 || rate >= minRate && !math.IsInf(rate, 0) {
		return nil
	}
	return fmt.Errorf("%s is %v: it must be 0 (unlimited) or at least %v", name, rate, minRate)
}

func rightNames() string {
	return strings.Join(slices.Sorted(maps.Keys(rights)), ", ")
}

// limits are the rate limits of one key. They are kept across reloads of the keys.
type limits struct{ requests, items bucket }

// admit counts a request. If the request exceeds a limit, wait is the time until it would be
// allowed, and limit describes the limit; otherwise wait is 0.
func (k *key) admit() (wait time.Duration, limit string) {
	if wait := k.requests.take(1, 1); wait > 0 {
		return wait, fmt.Sprint(k.entry.RequestsPerSecond, " requests per second")
	}
	// The number of items is only known at the end of the request, when they are charged,
	// and the level may fall far below zero. At the start, a request only needs one token.
	if wait := k.items.take(1, 0); wait > 0 {
		return wait, fmt.Sprint(k.entry.ItemsPerSecond, " items per second")
	}
	return 0, ""
}

// bucket is a token bucket with a capacity of one second's tokens, but at least one.
type bucket struct {
	limited atomic.Bool // rate > 0; most keys have no limit and need not lock mu

	mu    sync.Mutex
	rate  float64 // tokens per second; 0: no limit
	level float64
	last  time.Time
}

// set changes the rate but not the level, so that a reload does not refill the bucket. A bucket
// that had no limit starts full.
func (b *bucket) set(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.rate == 0 {
		b.level = size(rate)
	}
	b.rate = rate
	b.limited.Store(rate > 0)
	b.level = min(b.level, size(rate))
}

// take removes cost tokens and returns 0 if at least need tokens are available. If not, it removes
// none and returns the time until they are.
func (b *bucket) take(need, cost float64) (wait time.Duration) {
	if !b.limited.Load() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0
	}
	b.refill()
	if b.level < need {
		return max(1, time.Duration(min((need-b.level)/b.rate*float64(time.Second), maxWait)))
	}
	b.level -= cost
	return 0
}

func (b *bucket) charge(n int) { b.take(math.Inf(-1), float64(n)) }

func (b *bucket) refill() {
	now := time.Now()
	b.level = min(size(b.rate), b.level+b.rate*now.Sub(b.last).Seconds())
	b.last = now
}

func size(rate float64) float64 { return max(1, rate) }
