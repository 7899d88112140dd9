package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/watch"
)

// Keyring holds the keys in use: those of the configuration and those of the
// keys file, which is watched. A set is swapped in whole; a broken file keeps the
// last good one (contract 1.4).
type Keyring struct {
	path   string
	inline []KeyEntry
	log    zerolog.Logger

	now  atomic.Pointer[ring]
	file *watch.File // nil without one
	stop context.CancelFunc
	done chan struct{} // closed when the watching has ended

	mu      sync.Mutex // guards what follows, and reloads
	text    []byte     // the file's content that was judged last
	seen    bool       // whether text was read at all
	problem error
	loaded  time.Time
	prepare []func([]*contract.Client)
}

// OpenKeyring reads the keys and watches their file until Close. At the start a
// broken file is an error: there is no last good set yet.
func OpenKeyring(cfg Config, log zerolog.Logger) (*Keyring, error) {
	k := &Keyring{path: cfg.KeysFile, inline: cfg.Keys, log: log}
	if k.path == "" {
		return k, k.use(nil)
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	if text, err = watch.ReadAll(bytes.NewReader(text), maxKeysFile); err != nil { // as every check does
		return nil, fmt.Errorf("cannot read the keys file: %w", tooLong(err))
	}
	if err := k.judge(text); err != nil {
		return nil, err
	}
	k.watch()
	return k, nil
}

const (
	// settle is for how long the file has to be left alone before it is read:
	// editors and copies write in several steps.
	settle = 50 * time.Millisecond
	// pollEvery bounds how late a change is seen that no event tells of: network
	// file systems, or a folder that was itself replaced.
	pollEvery = 15 * time.Second
	// maxKeysFile is far more than the keys of any country.
	maxKeysFile = 64 << 20
)

// watch looks for changes until Close.
func (k *Keyring) watch() {
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	k.file, k.done = watch.NewFile(k.path, settle, maxKeysFile), make(chan struct{})
	go func() {
		defer close(k.done)
		defer k.file.Close()
		watch.Rounds(ctx, k.file.Changes(), settle, k.check)
	}()
}

// Close ends the watching. The keys stay in use.
func (k *Keyring) Close() {
	if k.file != nil {
		k.stop()
		<-k.done
	}
}

// Clients are those of the keys in use.
func (k *Keyring) Clients() []*contract.Client { return slices.Clone(k.now.Load().clients) }

// BeforeUse makes f be called with the clients of a new set before its keys
// become active, so that what is made for each client (the forecast layers of its
// time zone) is there with its first request. f is called at once for those
// in use, and never twice at a time.
func (k *Keyring) BeforeUse(f func([]*contract.Client)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.prepare = append(k.prepare, f)
	f(k.Clients())
}

// Err tells what is wrong with the keys file, nil if nothing is: for readiness.
func (k *Keyring) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.problem == nil {
		return nil
	}
	return fmt.Errorf("the %d keys of %s stay in use: %w", len(k.now.Load().clients), k.loaded.UTC().Format(time.RFC3339), k.problem)
}

// find gives the key whose text was presented, or nil.
func (k *Keyring) find(presented []byte) *key { return k.now.Load().find(presented) }

// check looks at the file and tells when to do so again.
func (k *Keyring) check(context.Context) time.Duration {
	text, _, err := k.file.Read()
	if errors.Is(err, watch.ErrUnsettled) {
		return settle
	}
	k.reload(text, tooLong(err))
	return pollEvery
}

// tooLong names the limit of this file, which is no setting.
func tooLong(err error) error {
	if errors.Is(err, watch.ErrTooLong) {
		return fmt.Errorf("longer than %d bytes", maxKeysFile)
	}
	return err
}

// reload takes the file's content, which may be the one in use, or why it could
// not be read. An error is logged once for each content.
func (k *Keyring) reload(text []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.seen && bytes.Equal(text, k.text) {
		return
	}
	if err != nil {
		k.seen = false
		k.report(fmt.Errorf("cannot read the keys file: %w", err))
		return
	}
	k.report(k.judgeLocked(text))
}

func (k *Keyring) report(err error) {
	if err == nil {
		keysReloads.Inc()
		k.log.Info().Str("file", k.path).Int("keys", len(k.now.Load().clients)).Msg("keys reloaded")
		return
	}
	repeated := k.problem != nil && k.problem.Error() == err.Error()
	k.problem = err
	keysStale.Set(1)
	if !repeated {
		keysReloadErrors.Inc()
		k.log.Error().Err(err).Msg("the last good keys stay in use")
	}
}

func (k *Keyring) judge(text []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.judgeLocked(text)
}

// judgeLocked puts the keys of a file's content into use, or says why not.
func (k *Keyring) judgeLocked(text []byte) error {
	k.text, k.seen = text, true
	entries, err := parseKeys(text)
	if err == nil {
		err = k.use(entries)
	}
	if err != nil {
		return fmt.Errorf("cannot use the keys file %s: %w", k.path, err)
	}
	return nil
}

// use swaps in the inline keys and those of the file.
func (k *Keyring) use(entries []KeyEntry) error {
	r, err := newRing(slices.Concat(k.inline, entries), k.now.Load())
	if err != nil {
		return err
	}
	for _, f := range k.prepare {
		f(slices.Clone(r.clients))
	}
	k.now.Store(r)
	k.problem, k.loaded = nil, time.Now()
	keysStale.Set(0)
	keysActive.Set(float64(len(r.clients)))
	return nil
}

// parseKeys reads "keys: [...]". Unknown members are errors, because they are
// mostly misspelt ones; so is a missing list, because an emptied or half-written
// file looks like that. To take all keys away, write "keys: []".
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
		return nil, errors.New(`it has no list "keys"; to take all keys away write "keys: []"`)
	}
	return *file.Keys, nil
}
