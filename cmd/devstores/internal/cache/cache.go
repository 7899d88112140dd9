// Package cache keeps the downloads of devstores: the ClickHouse engine and Kafka's jars.
//
// An entry is a directory that is either complete or does not exist, because it is filled under
// another name and then renamed. A lock ensures that programs that need the same entry download it
// only once.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"trafficd/cmd/internal/launch"
)

// Env names the environment variable with the cache's directory.
const Env = "TRAFFICD_CACHE"

// Dir returns the cache's directory: $TRAFFICD_CACHE, else .cache/devstores under the module's
// root, else one in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	if root, err := launch.ModuleRoot(); err == nil {
		return filepath.Join(root, ".cache", "devstores"), nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache directory, set %s: %w", Env, err)
	}
	return filepath.Join(user, "trafficd", "devstores"), nil
}

// Entry returns the directory of an entry. If it does not exist, fill is called with an empty
// directory; if that fails, nothing is kept. log receives a line if another program is filling the
// entry.
func Entry(ctx context.Context, name string, log io.Writer, fill func(dir string) error) (string, error) {
	root, err := Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	exists := func() bool {
		_, err := os.Stat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	}
	if exists() {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the cache directory, set %s to another one: %w", Env, err)
	}
	unlock, err := launch.Lock(ctx, dir+".lock", func() { fmt.Fprintf(log, "waiting for another program to download %s\n", name) })
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists() {
		return dir, nil
	}
	unfinished := dir + ".unfinished" // a fixed name, so that the next run removes what a killed one left behind
	defer os.RemoveAll(unfinished)
	if err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755)); err != nil {
		return "", fmt.Errorf("cannot create a cache entry: %w", err)
	}
	if err := fill(unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("cannot complete a cache entry: %w", err)
	}
	return dir, nil
}
