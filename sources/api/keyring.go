package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	"trafficd/schemas/contract"
)

// Keyring holds the keys of the configuration and of the keys file, which is watched. A new set
// replaces the old one as a whole. If the file is invalid, the last valid set remains in use
// (contract 1.4).
type Keyring struct {
	path string
	mtls bool // client certificates are accepted
	log  zerolog.Logger

	now      atomic.Pointer[ring]  // the keys in use
	rejected atomic.Pointer[error] // error of the last Reload, or nil
	file     *watch.File
	loop     feedloop.Loop[[]byte] // of the file
	stop     func()                // stops watching; nil: no keys file

	mu      sync.Mutex                 // guards the fields below and serialises reloads
	inline  []KeyEntry                 // the configuration's entries in use
	entries []KeyEntry                 // the file's entries in use
	text    []byte                     // the content of the file with these entries
	prepare []func([]*contract.Client) // registered by BeforeUse
}

// OpenKeyring reads the keys and watches their file until Close. An invalid key is an error.
func OpenKeyring(cfg Config, log zerolog.Logger) (*Keyring, error) {
	k := &Keyring{path: cfg.KeysFile, mtls: cfg.TLSClientCA != "", log: log}
	metrics.Register(metrics.GaugeFunc("trafficd_api_keys_stale", "1 if the keys are invalid and the last valid set is in use, else 0.", nil,
		func() float64 { return metrics.Bool(k.Err() != nil) }))
	k.loop.Status = feedloop.NewStatus("the keys file", keysChecks, log)
	k.loop.Status.Set(feedloop.State{InUse: true})
	if k.path == "" {
		return k, k.use(cfg.Keys, nil, nil)
	}
	text, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	entries, err := parseKeys(text)
	if err == nil {
		err = k.use(cfg.Keys, entries, text)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the keys file %s: %w", k.path, err)
	}
	k.file = watch.NewFile(k.path, settle, maxKeysFile)
	k.loop.Load, k.loop.Use, k.loop.Changes = k.load, k.replace, k.file.Changes()
	k.loop.Interval, k.loop.Settle, k.loop.Retry = pollEvery, settle, pollEvery
	k.stop = k.loop.Start(context.Background())
	return k, nil
}

const (
	// settle is how long the file must be unchanged before it is read, because editors and copies
	// write in several steps.
	settle = 50 * time.Millisecond
	// pollEvery bounds the delay of a change without an event, for example on network file systems
	// or if a directory was replaced.
	pollEvery   = 15 * time.Second
	maxKeysFile = 64 << 20
)

// Close stops watching. The keys stay in use.
func (k *Keyring) Close() {
	if k.stop != nil {
		k.stop()
		k.file.Close()
	}
}

// Reload replaces the keys of the configuration, and those of the file if it has changed and is
// valid. If it returns an error, the previous keys remain in use until the next Reload: a later
// change of the file does not make the rejected keys active.
func (k *Keyring) Reload(inline []KeyEntry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, entries, text, fresh := k.now.Load(), k.entries, k.text, false
	if k.path != "" {
		if now, err := k.read(); err == nil { // otherwise the loop reports the error
			if all, err := parseKeys(now); err == nil {
				entries, text, fresh = all, now, true
			}
		}
	}
	err := k.use(inline, entries, text)
	if err != nil && fresh { // if the file is to blame, the loop reports it, and uses it once it is correct
		if k.use(inline, k.entries, k.text) == nil {
			err, fresh = nil, false
		}
	}
	if err != nil {
		err = fmt.Errorf("cannot use api.keys, which has changed: %w; correct it and send SIGHUP again", err)
		k.rejected.Store(&err)
		return err
	}
	k.rejected.Store(nil)
	if fresh {
		k.loop.Status.Conclude(nil)
	}
	k.logReload(before)
	return nil
}

// read returns the content of the file.
func (k *Keyring) read() ([]byte, error) {
	file, err := os.Open(k.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := watch.ReadAll(file, maxKeysFile)
	return text, tooLong(err)
}

func (k *Keyring) logReload(before *ring) {
	missing := func(from, in *ring) (names []string) {
		for _, own := range from.keys {
			if !slices.ContainsFunc(in.keys, func(other *key) bool { return other.entry.Name == own.entry.Name }) {
				names = append(names, own.entry.Name)
			}
		}
		return names
	}
	now := k.now.Load()
	k.log.Info().Str("file", k.path).Int("keys", len(now.keys)).
		Strs("added", missing(now, before)).Strs("removed", missing(before, now)).Msg("keys reloaded")
}

// Clients returns the clients of the keys in use that have not expired.
func (k *Keyring) Clients() []*contract.Client { return k.now.Load().clients() }

// BeforeUse registers f, which is called with the clients of a new set before its keys become
// active, so that per-client resources (such as the forecast layer of the client's time zone) exist
// before the first request. f is called immediately for the clients in use, and never concurrently.
func (k *Keyring) BeforeUse(f func([]*contract.Client)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.prepare = append(k.prepare, f)
	f(k.Clients())
}

// Err returns the errors of the keys file and of the last Reload, for readiness, or nil. It does
// not wait for the functions registered by BeforeUse, which may take seconds.
func (k *Keyring) Err() error {
	problem := k.loop.Status.Get().Err
	if rejected := k.rejected.Load(); rejected != nil {
		problem = errors.Join(problem, *rejected)
	}
	if problem == nil {
		return nil
	}
	return fmt.Errorf("the keys loaded at %s stay in use: %w", k.now.Load().loaded.UTC().Format(time.RFC3339), problem)
}

// hasher computes the digest of a key. sha256.Sum256 allocates if the compiler inlines it but not
// the functions that it calls, as happens with profile-guided optimisation.
type hasher struct {
	hash.Hash
	sum [sha256.Size]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}

// find returns the key whose text was presented, or nil if there is none or it has expired.
func (k *Keyring) find(presented []byte) *key {
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.Reset()
	_, _ = h.Write(presented) // never fails
	found := k.now.Load().find([sha256.Size]byte(h.Sum(h.sum[:0])))
	if found == nil || found.expired() {
		return nil
	}
	return found
}

// load returns the content of the file unless its entries are in use.
func (k *Keyring) load(context.Context) ([]byte, error) {
	text, _, err := k.file.Read()
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", tooLong(err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if bytes.Equal(text, k.text) {
		return nil, watch.ErrUnchanged
	}
	return text, nil
}

// replace activates the keys in text, the content of the file.
func (k *Keyring) replace(text []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.now.Load()
	entries, err := parseKeys(text)
	if err == nil {
		err = k.use(k.inline, entries, text)
	}
	if err != nil {
		return fmt.Errorf("cannot use the keys file %s: %w", k.path, err)
	}
	k.logReload(before)
	return nil
}

// ExpireBefore returns a sentence for each key that expires before at or has expired.
func (k *Keyring) ExpireBefore(at time.Time) (list []string) {
	for _, own := range k.now.Load().keys {
		if !own.expires.IsZero() && own.expires.Before(at) {
			list = append(list, fmt.Sprintf("the key %q expires on %s: from then on, its requests are rejected with 401; "+
				"give the client a new one", own.entry.Name, own.expires.UTC().Format(time.DateOnly)))
		}
	}
	return list
}

// tooLong replaces watch.ErrTooLong, which names a setting that this file does not have.
func tooLong(err error) error {
	if errors.Is(err, watch.ErrTooLong) {
		return fmt.Errorf("longer than %d bytes", maxKeysFile)
	}
	return err
}

// use activates the entries of the configuration and of the file, whose content is text.
func (k *Keyring) use(inline, entries []KeyEntry, text []byte) error {
	r, err := newRing(slices.Concat(inline, entries), k.now.Load())
	if err != nil {
		return err
	}
	if len(r.certificates) > 0 && !k.mtls {
		return errors.New("entries with a certificate require api.tls_client_ca, the file with the CA certificates of clients")
	}
	for _, f := range k.prepare {
		f(r.clients())
	}
	k.now.Store(r)
	k.inline, k.entries, k.text = inline, entries, text
	metrics.Register(metrics.GaugeFunc("trafficd_api_keys", "API keys in use that have not expired.", nil,
		func() float64 { return float64(len(r.clients())) }))
	keyExpiry.Reset()
	for _, own := range r.keys {
		if !own.expires.IsZero() {
			keyExpiry.WithLabelValues(own.entry.Name).Set(float64(own.expires.Unix()))
		}
	}
	return nil
}

// ParseKeys returns the entries of a keys file. If a daemon without other keys could not use them,
// ParseKeys returns an error, with the entries if they can be read.
func ParseKeys(text []byte) ([]KeyEntry, error) {
	entries, err := parseKeys(text)
	if err == nil {
		_, err = newRing(entries, nil)
	}
	return entries, err
}

// parseKeys reads "keys: [...]". Unknown members are errors, because most of them are misspelt. A
// missing list is an error too, because the file may be truncated or half-written.
func parseKeys(text []byte) ([]KeyEntry, error) {
	var file struct {
		Keys *[]KeyEntry `yaml:"keys"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if file.Keys == nil {
		return nil, errors.New(`missing list "keys"; to remove all keys write "keys: []"`)
	}
	return *file.Keys, nil
}
