package registry

import (
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

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/replace"
)

// cache keeps the last good list of a product instance on disk. A daemon that restarts while the
// feed is unavailable can then accept batches, and detects a list that has shrunk in the meantime.
// The modification time of the file is the time at which the feed last confirmed the list.
type cache struct {
	path     string // empty if lists are not cached; no file has an empty path
	instance string
	maxAge   time.Duration
}

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

// load returns the list and the time at which the feed last confirmed it. The error wraps
// fs.ErrNotExist if there is no recent list.
func (c cache) load(now time.Time) (codes []string, confirmed time.Time, err error) {
	info, err := os.Stat(c.path)
	if err != nil {
		return nil, confirmed, err
	}
	confirmed = info.ModTime()
	if now.Sub(confirmed) > c.maxAge {
		return nil, confirmed, fs.ErrNotExist
	}
	text, err := os.ReadFile(c.path)
	var list cachedList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, confirmed, fmt.Errorf("cannot read %s: %w", c.path, err)
	}
	if list.ProductInstance != c.instance {
		return nil, confirmed, fmt.Errorf("cannot use %s: it belongs to product instance %q", c.path, list.ProductInstance)
	}
	return list.Detectors, confirmed, nil
}

// save replaces the cached list. It does nothing if lists are not cached.
func (c cache) save(set *batch.Detectors) error {
	if c.path == "" {
		return nil
	}
	codes := make([]string, set.Len())
	for i := range codes {
		codes[i] = string(set.Code(i))
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
	err := os.Chtimes(c.path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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
