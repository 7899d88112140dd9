// Package cache keeps the downloads of devstores: the ClickHouse engine and the jars of Kafka and
// ZooKeeper.
//
// An entry is a directory that is either complete or does not exist, because it is filled under a
// temporary name and then renamed. A lock ensures that programs that need the same entry download
// it only once.
package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Env is the name of the environment variable that holds the cache's directory.
const Env = "TRAFFICD_CACHE"

// Dir returns the cache's directory: $TRAFFICD_CACHE if it is set, otherwise .cache/devstores in
// the module's root or, outside the module, trafficd/devstores in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	if root, err := launch.ModuleRoot(); err == nil {
		return filepath.Join(root, ".cache", "devstores"), nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache directory: %w; set %s", err, Env)
	}
	return filepath.Join(user, "trafficd", "devstores"), nil
}

// Entry returns the directory of an entry. If the entry does not exist, Entry creates it by calling
// fill with an empty directory; if fill fails, it returns the error and creates no entry. log
// receives a line if another program is filling the entry.
func Entry(ctx context.Context, name string, log io.Writer, fill func(dir string) error) (dir string, err error) {
	defer must.Return(&err, "cannot create a cache entry (set "+Env+" to use a different directory)")
	root := must.Get(Dir())
	dir = filepath.Join(root, name)
	exists := func() bool {
		_, err := os.Stat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	}
	if exists() {
		return dir, nil
	}
	must.Do(os.MkdirAll(root, 0o755))
	unlock := must.Get(launch.Lock(ctx, dir+".lock", func() { fmt.Fprintf(log, "waiting for another program to download %s\n", name) }))
	defer unlock()
	if exists() {
		return dir, nil
	}
	unfinished := dir + ".unfinished" // a fixed name, so that the next run removes what a killed run left
	defer os.RemoveAll(unfinished)
	must.Do(os.RemoveAll(unfinished))
	must.Do(os.Mkdir(unfinished, 0o755))
	if err := fill(unfinished); err != nil {
		return "", err
	}
	return dir, os.Rename(unfinished, dir)
}

// Jars returns the directory with the jars of a Java program, which Maven downloads unless they are
// in the cache. log receives Maven's output. A changed pom results in a new entry.
func Jars(ctx context.Context, program, version string, pom []byte, log io.Writer) (string, error) {
	name := fmt.Sprintf("%s-%s-%.4x", strings.ToLower(program), version, sha256.Sum256(pom))
	return Entry(ctx, name, log, func(dir string) (err error) {
		defer must.Return(&err, "cannot fetch "+program+" with Maven")
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return fmt.Errorf("cannot fetch %s: %w; install Maven", program, err)
		}
		work := must.Get(os.MkdirTemp(dir, "mvn-"))
		defer os.RemoveAll(work)
		file := filepath.Join(work, "pom.xml")
		must.Do(os.WriteFile(file, pom, 0o644))
		fmt.Fprintf(log, "fetching %s %s with Maven\n", program, version)
		cmd := exec.Command(mvn, "--batch-mode", "--strict-checksums", "--file", file, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
		cmd.Stdout, cmd.Stderr = log, log
		must.Do(launch.Run(ctx, cmd)) // Maven has printed the reason
		return nil
	})
}
