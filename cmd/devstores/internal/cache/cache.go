// Package cache keeps what devstores fetches from elsewhere (an engine, jars) so that it is fetched once.
//
// An entry is a folder that either is whole or is not there: it is filled under another name and renamed. A lock makes
// two programs that want the same entry fetch it once.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"trafficd/cmd/devstores/internal/filelock"
)

// Env names the environment variable that moves the cache.
const Env = "TRAFFICD_CACHE"

const module = "trafficd"

// Dir is the cache's folder: $TRAFFICD_CACHE, else .cache/devstores under the module's root, else the user's cache folder.
func Dir() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	if root, err := ModuleRoot(); err == nil {
		return filepath.Join(root, ".cache", "devstores"), nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache folder, set %s: %w", Env, err)
	}
	return filepath.Join(user, module, "devstores"), nil
}

// ModuleRoot is the folder at or above the working directory whose go.mod is this module's.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the module's root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+module+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("cannot find the root of module %s at or above %s: run inside its tree", module, start)
		}
	}
}

// Entry returns the folder of the entry name, filled by fill if it is not there yet. fill gets an empty folder; if it fails,
// nothing of it stays. log gets a line if somebody else is filling the entry.
func Entry(ctx context.Context, name string, log io.Writer, fill func(dir string) error) (string, error) {
	root, err := Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache folder, set %s to another: %w", Env, err)
	}
	unlock, err := filelock.Take(ctx, dir+".lock", func() { fmt.Fprintf(log, "waiting for another program that fetches %s\n", name) })
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	return dir, fillAtomically(dir, fill)
}

// fillAtomically wants the lock: the unfinished folder's name is always the same, so what a killed run left is swept by the next.
func fillAtomically(dir string, fill func(string) error) error {
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("cannot sweep the cache: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return fmt.Errorf("cannot make a cache entry: %w", err)
	}
	if err := fill(unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("cannot finish a cache entry: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
