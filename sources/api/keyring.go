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

	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	"trafficd/schemas/contract"
)

// Keyring holds the keys of the configuration and of the keys file, which is watched. A new set
// replaces the old one as a whole. If the file is invalid, the last valid set remains in use
// (contract 1.4).
type Keyring struct {
	path string
	log  zerolog.Logger

	now     atomic.Pointer[ring]  // the keys in use
	problem atomic.Pointer[error] // error of the keys file or of the last Reload; nil if there is none
	file    *watch.File           // nil: no keys file
	stop    func()                // stops watching

	mu      sync.Mutex                 // guards the fields below and serialises reloads
	inline  []KeyEntry                 // the configuration's entries in use
	wanted  []KeyEntry                 // the entries of the last Reload, which may conflict with the file
	text    []byte                     // the last content of the file
	seen    bool                       // the last attempt to read the file succeeded
	prepare []func([]*contract.Client) // registered by BeforeUse
}

// OpenKeyring reads the keys and watches their file until Close. An invalid key is an error.
func OpenKeyring(cfg Config, log zerolog.Logger) (*Keyring, error) {
	k := &Keyring{path: cfg.KeysFile, inline: cfg.Keys, wanted: cfg.Keys, log: log}
	if k.path == "" {
		return k, k.use(k.inline, nil)
	}
	file, err := os.Open(k.path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	defer file.Close()
	text, err := watch.ReadAll(file, maxKeysFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", tooLong(err))
	}
	if err := k.apply(text); err != nil {
		return nil, err
	}
	k.file = watch.NewFile(k.path, settle, maxKeysFile)
	k.stop = k.file.Watch(settle, k.check)
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
	}
}

// Reload replaces the keys of the configuration and triggers a check of the keys file. If it
// returns an error, the previous keys remain in use until the file changes.
func (k *Keyring) Reload(inline []KeyEntry) error {
	if k.file != nil {
		defer k.file.Poke()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = inline
	before := k.now.Load()
	var entries []KeyEntry
	var err error
	if k.path != "" {
		entries, err = parseKeys(k.text)
	}
	if err == nil {
		if err = k.use(inline, entries); err != nil {
			k.conflicts(err)
		}
	}
	if err == nil {
		k.logReload(before)
	}
	return err
}

// conflicts records that the entries of the last Reload are not in use.
func (k *Keyring) conflicts(err error) {
	err = fmt.Errorf("cannot use api.keys, which has changed: %w", err)
	k.problem.Store(&err)
	keysStale.Set(1)
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

// Err returns the error of the keys file, or of the last Reload, for readiness, or nil. It does not
// wait for the functions registered by BeforeUse, which may take seconds.
func (k *Keyring) Err() error {
	problem := k.problem.Load()
	if problem == nil {
		return nil
	}
	return fmt.Errorf("the keys loaded at %s stay in use: %w", k.now.Load().loaded.UTC().Format(time.RFC3339), *problem)
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

// check reads the file, applies its content if it is new, and returns the time until the next
// check. An error is logged unless it is the same as the last one.
func (k *Keyring) check(context.Context) time.Duration {
	text, _, err := k.file.Read()
	if errors.Is(err, watch.ErrUnsettled) {
		return settle
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.now.Load()
	switch {
	case err != nil:
		k.seen = false
		err = fmt.Errorf("cannot read the keys file: %w", tooLong(err))
	case k.seen && bytes.Equal(text, k.text):
		return pollEvery
	default:
		err = k.apply(text)
	}
	if err == nil {
		keysReloads.Inc()
		k.logReload(before)
		return pollEvery
	}
	if last := k.problem.Swap(&err); last == nil || (*last).Error() != err.Error() {
		keysReloadErrors.Inc()
		k.log.Error().Err(err).Msg("cannot reload the keys; the last valid ones remain in use")
	}
	keysStale.Set(1)
	return pollEvery
}

// tooLong replaces watch.ErrTooLong, which names a setting that this file does not have.
func tooLong(err error) error {
	if errors.Is(err, watch.ErrTooLong) {
		return fmt.Errorf("longer than %d bytes", maxKeysFile)
	}
	return err
}

// apply activates the keys in text, the content of the file, together with the entries of the last
// Reload or, if those conflict with the file, the previous ones.
func (k *Keyring) apply(text []byte) error {
	k.text, k.seen = text, true
	entries, err := parseKeys(text)
	if err == nil {
		if conflict := k.use(k.wanted, entries); conflict != nil {
			if err = k.use(k.inline, entries); err == nil {
				k.conflicts(conflict)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot use the keys file %s: %w", k.path, err)
	}
	return nil
}

// use activates the entries of the configuration and of the file.
func (k *Keyring) use(inline, entries []KeyEntry) error {
	r, err := newRing(slices.Concat(inline, entries), k.now.Load())
	if err != nil {
		return err
	}
	for _, f := range k.prepare {
		f(r.clients())
	}
	k.now.Store(r)
	k.inline = inline
	if k.seen { // otherwise the file still cannot be read
		k.problem.Store(nil)
		keysStale.Set(0)
	}
	metrics.Register(metrics.GaugeFunc("trafficd_api_keys", "API keys in use that have not expired.", nil,
		func() float64 { return float64(len(r.clients())) }))
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
