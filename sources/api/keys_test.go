package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/pipeline/lib/watch"
	"trafficd/schemas/contract"
)

// keysYAML returns a keys file with the given entries.
func keysYAML(entries ...KeyEntry) string {
	text := "keys:\n"
	for _, e := range entries {
		text += fmt.Sprintf("- {name: %q, sha256: %q, product_instance: %q, rights: [%s], timezone: %q, requests_per_second: %v, items_per_second: %v}\n",
			e.Name, e.SHA256, e.ProductInstance, strings.Join(e.Rights, ", "), e.Timezone, e.RequestsPerSecond, e.ItemsPerSecond)
	}
	return text
}

func openKeys(t *testing.T, path string, inline ...KeyEntry) *Keyring {
	t.Helper()
	k, err := OpenKeyring(Config{KeysFile: path, Keys: inline}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

func names(k *Keyring) string {
	var all []string
	for _, c := range k.Clients() {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

func becomes(t *testing.T, k *Keyring, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return names(k) == want }, patience, time.Millisecond, "want the keys %q", want)
}

// awaitErr waits until Err contains want, or until Err is nil if want is empty. The check that
// changes Err has ended when awaitErr returns.
func awaitErr(t *testing.T, k *Keyring, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		k.mu.Lock() // held by a check until it has updated its metrics too
		defer k.mu.Unlock()
		err := k.Err()
		return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
	}, patience, time.Millisecond, want)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestKeysFileIsReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	one, two := entry("one", "k1", "ingest"), entry("two", "k2", "forecast", "routing")
	two.Timezone = "Europe/Copenhagen"
	write(t, path, keysYAML(one))
	k := openKeys(t, path, entry("inline", "k0", "routing"))
	require.Equal(t, "inline one", names(k))

	write(t, path, keysYAML(one, two)) // in place
	becomes(t, k, "inline one two")
	found := k.find([]byte("k2")).client
	require.Equal(t, contract.Client{Name: "two", Owner: "city\x00two", ProductInstance: "city", Rights: contract.RightForecast | contract.RightRouting, Zone: found.Zone}, *found)
	require.Equal(t, "Europe/Copenhagen", found.Zone.String())
	require.Equal(t, time.UTC, k.find([]byte("k1")).client.Zone)

	next := path + ".new" // by an atomic rename
	write(t, next, keysYAML(two))
	require.NoError(t, os.Rename(next, path))
	becomes(t, k, "inline two")
	require.Nil(t, k.find([]byte("k1")), "a withdrawn key is unknown immediately")

	write(t, path, "keys: []\n")
	becomes(t, k, "inline")
	require.NoError(t, k.Err())
}

// TestExpiryIsExported checks that the metric has a series for each key in use that expires.
func TestExpiryIsExported(t *testing.T) {
	expiring := entry("expiring", "k1", "ingest")
	expiring.Expires = "2027-01-01T00:00:00Z"
	k := openKeys(t, "", expiring, entry("lasting", "k2", "ingest"))
	require.Equal(t, 1, testutil.CollectAndCount(keyExpiry))
	require.InDelta(t, 1798761600, testutil.ToFloat64(keyExpiry.WithLabelValues("expiring")), 0)
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Empty(t, k.ExpireBefore(expires))
	warnings := k.ExpireBefore(expires.Add(time.Second))
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], `the key "expiring" expires on 2027-01-01: `)
	require.NoError(t, k.Reload(nil))
	require.Zero(t, testutil.CollectAndCount(keyExpiry))
}

// TestKeysFileBehindSwappedLinks tests a keys file that is mounted like a Kubernetes secret:
// keys.yaml → ..data/keys.yaml, ..data → a directory; a change swaps ..data.
func TestKeysFileBehindSwappedLinks(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "keys.yaml"), text)
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	version("v1", keysYAML(entry("one", "k1", "ingest")))
	mount := t.TempDir() // the configured link is in another directory
	path := filepath.Join(mount, "keys.yaml")
	require.NoError(t, os.Symlink(filepath.Join(dir, "..data", "keys.yaml"), path))
	k := openKeys(t, path)
	for i := 2; i < 5; i++ {
		name := fmt.Sprintf("v%d", i)
		version(name, keysYAML(entry(name, "k", "ingest")))
		becomes(t, k, name)
	}
}

func TestInvalidKeysFileKeepsTheLastValidSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	first := keysYAML(entry("one", "k1", "ingest"))
	write(t, path, first)
	k := openKeys(t, path)
	f := func(text, want string) {
		t.Helper()
		failed := testutil.ToFloat64(keysChecks.Failed)
		write(t, path, text)
		awaitErr(t, k, want)
		require.Equal(t, "one", names(k))
		require.NotNil(t, k.find([]byte("k1")))
		require.Greater(t, testutil.ToFloat64(keysChecks.Failed), failed)
		write(t, path, first)
		awaitErr(t, k, "")
	}
	f("", `missing list "keys"`)
	f("keys:\n", `missing list "keys"`)
	f("keys: [", "keys.yaml")
	f("keys:\n- {nmae: x}\n", "nmae")
	f("other: 1\n", "other")
	f(keysYAML(entry("two", "k2", "ingest"), entry("two", "k3", "ingest")), `entry 2 (name "two"): duplicate name: entry 1`)
	f(keysYAML(entry("two", "k2", "fly")), `unknown right "fly"`)

	require.NoError(t, os.Remove(path))
	awaitErr(t, k, "no such file")
	require.Equal(t, "one", names(k))
	require.NoError(t, k.Reload([]KeyEntry{entry("inline", "k0", "ingest")}))
	require.Error(t, k.Err(), "the file is still missing")
	require.Equal(t, "inline one", names(k))
	write(t, path, first)
	awaitErr(t, k, "")
}

// TestReloadEndsConflict checks that Reload clears the problem with a keys file that had only one
// fault: an entry that the configuration also had.
func TestReloadEndsConflict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, "keys: []")
	k := openKeys(t, path, entry("one", "k1", "ingest"))
	write(t, path, keysYAML(entry("one", "k1", "ingest")))
	awaitErr(t, k, "duplicate name")
	require.NoError(t, k.Reload([]KeyEntry{entry("one", "k2", "ingest")}))
	require.ErrorContains(t, k.Err(), "duplicate name", "the file still conflicts")
	require.NoError(t, k.Reload(nil))
	require.NoError(t, k.Err())
	require.Equal(t, "one", names(k))
}

// TestRejectedKeysStayInactive checks that keys of the configuration that conflict with the keys
// file do not become active when the file changes, but with the next Reload.
func TestRejectedKeysStayInactive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, keysYAML(entry("one", "k1", "ingest"), entry("two", "k2", "ingest")))
	k := openKeys(t, path)
	inline := []KeyEntry{entry("one", "k1", "ingest"), entry("three", "k3", "ingest")}
	require.ErrorContains(t, k.Reload(inline), `cannot use api.keys, which has changed: entry 3 (name "one"): duplicate name`)
	require.Equal(t, "one two", names(k))
	write(t, path, keysYAML(entry("two", "k2", "ingest")))
	becomes(t, k, "two")
	require.ErrorContains(t, k.Err(), "cannot use api.keys")
	require.Nil(t, k.find([]byte("k3")))
	require.NoError(t, k.Reload(inline))
	require.Equal(t, "one three two", names(k))
	require.NoError(t, k.Err())
}

// TestReloadWithInvalidFile checks that a Reload while the file has an invalid entry leaves the
// report to the check of the file, whose next valid content is used without another Reload.
func TestReloadWithInvalidFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, keysYAML(entry("one", "k1", "ingest")))
	k := openKeys(t, path)
	write(t, path, keysYAML(KeyEntry{Name: "one", SHA256: "short", ProductInstance: "city", Rights: []string{"ingest"}}))
	require.NoError(t, k.Reload([]KeyEntry{entry("inline", "k0", "ingest")}), "the keys of the configuration are valid")
	require.Equal(t, "inline one", names(k))
	awaitErr(t, k, "sha256 must be")
	write(t, path, keysYAML(entry("two", "k2", "ingest")))
	becomes(t, k, "inline two")
	awaitErr(t, k, "")
}

// TestReloadReadsFile checks that a key can move from the file to the configuration with one
// SIGHUP, even if the change of the file has not been noticed yet.
func TestReloadReadsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, keysYAML(entry("one", "k1", "ingest")))
	k := openKeys(t, path)
	k.Close() // nothing else reads the file
	write(t, path, "keys: []")
	require.NoError(t, k.Reload([]KeyEntry{entry("one", "k1", "ingest")}))
	require.Equal(t, "one", names(k))
	require.NoError(t, k.Err())
}

// TestKeysFileFormats checks that a file with a byte order mark or compression can be read at
// startup and by each later check.
func TestKeysFileFormats(t *testing.T) {
	f := func(text string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "keys.yaml")
		write(t, path, text)
		k, err := OpenKeyring(Config{KeysFile: path}, zerolog.Nop())
		require.NoError(t, err)
		defer k.Close()
		file := watch.NewFile(path, 0, maxKeysFile)
		defer file.Close()
		at, _, err := file.Read()
		require.NoError(t, err)
		require.Equal(t, string(k.text), string(at))
		require.Empty(t, k.Clients())
	}
	f("keys: []\n")
	f("\xef\xbb\xbfkeys: []\n")
	f(string(compress.Gzip("keys: []\n")))
}

func TestBrokenKeysFileAtStart(t *testing.T) {
	_, err := OpenKeyring(Config{KeysFile: filepath.Join(t.TempDir(), "none")}, zerolog.Nop())
	require.ErrorContains(t, err, "cannot read the keys file")
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, "keys: {}")
	_, err = OpenKeyring(Config{KeysFile: path}, zerolog.Nop())
	require.ErrorContains(t, err, "cannot use the keys file")
	write(t, path, keysYAML(entry("one", "k1", "ingest")))
	_, err = OpenKeyring(Config{KeysFile: path, Keys: []KeyEntry{entry("one", "k2", "ingest")}}, zerolog.Nop())
	require.ErrorContains(t, err, "duplicate name")
}

func TestEntriesAreChecked(t *testing.T) {
	f := func(want string, change func(*KeyEntry)) {
		t.Helper()
		bad := entry("bad", "k2", "ingest")
		change(&bad)
		_, err := newRing([]KeyEntry{entry("good", "k1", "ingest"), bad}, nil)
		require.ErrorContains(t, err, "entry 2")
		require.ErrorContains(t, err, want)
	}
	f("missing name", func(e *KeyEntry) { e.Name = "" })
	f("duplicate name: entry 1", func(e *KeyEntry) { e.Name = "good" })
	f("duplicate sha256 or certificate: entry 1", func(e *KeyEntry) { e.SHA256 = strings.ToUpper(entry("", "k1").SHA256) })
	f("64 hexadecimal", func(e *KeyEntry) { e.SHA256 = e.SHA256[:62] })
	f("64 hexadecimal", func(e *KeyEntry) { e.SHA256 = "the key itself" })
	f("either sha256", func(e *KeyEntry) { e.SHA256 = "" })
	f("either sha256", func(e *KeyEntry) { e.Certificate = e.SHA256 })
	f("openssl x509 -noout -fingerprint", func(e *KeyEntry) { e.SHA256, e.Certificate = "", "CN=acme" })
	f("subject requires certificate", func(e *KeyEntry) { e.Subject = "CN=acme" })
	f("product_instance", func(e *KeyEntry) { e.ProductInstance = "" })
	f("missing rights", func(e *KeyEntry) { e.Rights = nil })
	f("forecast, ingest, routing", func(e *KeyEntry) { e.Rights = []string{"ingest", "Ingest"} })
	f("Europe/Berlin", func(e *KeyEntry) { e.Timezone = "Mars/Olympus" })
	f("IANA", func(e *KeyEntry) { e.Timezone = "Local" })
	f("requests_per_second is -1", func(e *KeyEntry) { e.RequestsPerSecond = -1 })
	f("items_per_second is 1e-09", func(e *KeyEntry) { e.ItemsPerSecond = 1e-9 })
}

func TestForecastZonesAreLimited(t *testing.T) {
	zones := []string{"Europe/Berlin", "Europe/Paris", "Europe/Rome", "Europe/Madrid", "Europe/Vienna", "Europe/Oslo", "Europe/Copenhagen", "Europe/Prague", "Europe/Warsaw"}
	entries := func(right string) (all []KeyEntry) {
		for i, zone := range zones {
			e := entry(zone, fmt.Sprint("k", i), right)
			e.Timezone = zone
			all = append(all, e)
		}
		return all
	}
	_, err := newRing(entries("forecast"), nil)
	require.ErrorContains(t, err, "9 time zones")
	_, err = newRing(entries("forecast")[:8], nil)
	require.NoError(t, err)
	_, err = newRing(entries("ingest"), nil)
	require.NoError(t, err)
}

// TestBeforeUse checks that BeforeUse functions see new clients before their keys work.
func TestBeforeUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, keysYAML(entry("one", "k1", "forecast")))
	k := openKeys(t, path)
	clients := make(chan []*contract.Client, 10)
	active := make(chan bool, 10)
	k.BeforeUse(func(c []*contract.Client) {
		clients <- c
		active <- k.find([]byte("k2")) != nil
	})
	require.Len(t, <-clients, 1)
	require.False(t, <-active)
	write(t, path, keysYAML(entry("one", "k1", "forecast"), entry("two", "k2", "forecast")))
	require.Len(t, <-clients, 2)
	require.False(t, <-active)
	becomes(t, k, "one two")
}

// TestErrWhileKeysAreReplaced checks that readiness does not wait while the layer of new keys is
// being built.
func TestErrWhileKeysAreReplaced(t *testing.T) {
	k, err := OpenKeyring(Config{Keys: []KeyEntry{entry("one", "k1", "ingest")}}, zerolog.Nop())
	require.NoError(t, err)
	building, built, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go k.BeforeUse(func([]*contract.Client) { close(building); <-built })
	<-building
	go func() { result <- k.Err() }()
	select {
	case err := <-result:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Error("readiness is blocked")
	}
	close(built)
}

// TestRatesSurviveReload checks that a reload keeps the levels of the rate limits and applies the
// new rates.
func TestRatesSurviveReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := entry("one", "k1", "ingest")
		limited.RequestsPerSecond = 2
		first, err := newRing([]KeyEntry{limited}, nil)
		require.NoError(t, err)
		for range 2 {
			require.Zero(t, admitted(first.find(sha256.Sum256([]byte("k1")))))
		}
		limited.Name = "renamed"
		limited.RequestsPerSecond = 0.5
		second, err := newRing([]KeyEntry{entry("new", "k0", "ingest"), limited}, first)
		require.NoError(t, err)
		require.Equal(t, "renamed", second.find(sha256.Sum256([]byte("k1"))).client.Name)
		require.Equal(t, 2*time.Second, admitted(second.find(sha256.Sum256([]byte("k1")))))

		_, err = newRing([]KeyEntry{entry("", "k0"), entry("one", "k1", "ingest")}, second) // an invalid entry, and one without a limit
		require.Error(t, err)
		require.Equal(t, 2*time.Second, admitted(second.find(sha256.Sum256([]byte("k1")))), "an invalid set changes nothing")
	})
}

func admitted(k *key) time.Duration {
	wait, _ := k.admit()
	return wait
}

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bucket
		f := func(need, cost float64, want time.Duration) { t.Helper(); require.Equal(t, want, b.take(need, cost)) }
		f(1, 1, 0) // no limit
		b.charge(1_000_000)
		b.set(4)
		for range 4 {
			f(1, 1, 0) // one second's worth at once
		}
		f(1, 1, 250*time.Millisecond)
		time.Sleep(250 * time.Millisecond)
		f(1, 1, 0)
		f(1, 1, 250*time.Millisecond)
		time.Sleep(time.Hour)
		b.charge(44)
		f(1, 0, 10250*time.Millisecond) // below zero
		time.Sleep(10250 * time.Millisecond)
		f(1, 0, 0)
		f(1, 0, 0) // nothing was taken
		b.set(0)
		f(1, 1, 0)
		b.set(0.1)
		f(1, 1, 0) // a bucket holds at least one token
		f(1, 1, 10*time.Second)
	})
}

// TestLongWait checks that the time until the next token does not overflow.
func TestLongWait(t *testing.T) {
	var b bucket
	b.set(minRate)
	b.charge(20_000_000) // 634 years, more than a time.Duration
	require.Greater(t, b.take(1, 0), 100*365*24*time.Hour)
}

func TestLookUpDoesNotAllocate(t *testing.T) {
	r, err := newRing([]KeyEntry{entry("one", "k1", "ingest")}, nil)
	require.NoError(t, err)
	known, unknown := []byte("k1"), []byte("k2")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if r.find(sha256.Sum256(known)) == nil || r.find(sha256.Sum256(unknown)) != nil {
			t.Error("got the wrong key, want k1 only")
		}
	}))
}

// TestKeyExpires checks that a key is unknown once it has expired.
func TestKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := entry("one", "k1", "ingest")
		e.Expires = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		r, err := newRing([]KeyEntry{e}, nil)
		require.NoError(t, err)
		k := &Keyring{}
		k.now.Store(r)
		require.NotNil(t, k.find([]byte("k1")))
		require.Len(t, k.Clients(), 1)
		time.Sleep(time.Hour)
		require.Nil(t, k.find([]byte("k1")))
		require.Empty(t, k.Clients(), "an expired key does not count in readiness and needs no time zone")
		e.Expires = "tomorrow"
		_, err = newRing([]KeyEntry{e}, nil)
		require.ErrorContains(t, err, "expires must be an RFC 3339 time")
	})
	text := strings.Replace(keysYAML(entry("one", "k1", "ingest")), "}", ", expires: 2027-01-01T00:00:00Z}", 1)
	entries, err := parseKeys([]byte(text))
	require.NoError(t, err)
	require.Equal(t, "2027-01-01T00:00:00Z", entries[0].Expires)
}
