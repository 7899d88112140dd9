package registry

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"trafficd/pipeline/replace"
)

// cache keeps the last good list of a product instance on disk. A daemon that restarts while the
// feed is unavailable can then accept batches, and detects a list that has shrunk in the meantime.
// The modification time of the file is the time at which the feed last confirmed the list.
type cache struct {
	path     string // empty: lists are not cached
	instance string
	maxAge   time.Duration
}

// cachedList is the content of a cache file.
type cachedList struct {
	ProductInstance string   `json:"product_instance"`
	Detectors       []string `json:"detectors"`
}

// newCache returns the cache of a product instance. The file name is a digest, because product
// instances are not always valid file names.
func newCache(cfg Config, instance string) cache {
	c := cache{instance: instance, maxAge: cfg.CacheMaxAge}
	if cfg.CacheDir != "" && cfg.CacheMaxAge > 0 {
		digest := sha256.Sum256([]byte(instance))
		c.path = filepath.Join(cfg.CacheDir, hex.EncodeToString(digest[:16])+".json")
	}
	return c
}

// load returns the list and the time at which the feed last confirmed it. It returns fs.ErrNotExist
// if there is no recent list.
func (c cache) load(now time.Time) ([]string, time.Time, error) {
	if c.path == "" {
		return nil, time.Time{}, fs.ErrNotExist
	}
	f, err := os.Open(c.path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	if now.Sub(info.ModTime()) > c.maxAge {
		return nil, time.Time{}, fmt.Errorf("%w: the list was confirmed at %s, more than registry.cache_max_age ago",
			fs.ErrNotExist, info.ModTime().UTC().Format(time.RFC3339))
	}
	var list cachedList
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(&list); err != nil {
		return nil, time.Time{}, fmt.Errorf("cannot read %s: %w", c.path, err)
	}
	if list.ProductInstance != c.instance {
		return nil, time.Time{}, fmt.Errorf("cannot use %s: it belongs to product instance %q", c.path, list.ProductInstance)
	}
	return list.Detectors, info.ModTime(), nil
}

// save replaces the cached list.
func (c cache) save(codes []string) error {
	if c.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o750); err != nil {
		return err
	}
	return replace.File(c.path, 0o640, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(cachedList{c.instance, codes})
	})
}

// confirm records that the feed has returned the same list again.
func (c cache) confirm(now time.Time) error {
	if c.path == "" {
		return nil
	}
	err := os.Chtimes(c.path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove deletes the cached list.
func (c cache) remove() {
	if c.path != "" {
		_ = os.Remove(c.path) // a file that cannot be removed expires
	}
}

// cachedInstances returns the product instances that have a cached list.
func cachedInstances(cfg Config) (instances []string) {
	if cfg.CacheDir == "" || cfg.CacheMaxAge == 0 {
		return nil
	}
	paths, _ := filepath.Glob(filepath.Join(cfg.CacheDir, "*.json")) // the pattern is valid
	for _, path := range paths {
		var list cachedList
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &list) == nil {
			instances = append(instances, list.ProductInstance)
		}
	}
	return instances
}
