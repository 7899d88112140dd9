package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/schemas/contract"
	"trafficd/sources/api"
	"trafficd/sources/registry"
)

// check adds to the problems with the settings those with the files and directories named in them
// and, if deep, with the stores and feeds of the sections without such problems. It writes to w
// what it has found otherwise, and creates nothing.
func check(ctx context.Context, w io.Writer, c *config.Config, origins conf.Origins, invalid error, deep bool) error {
	for _, warning := range warnings(c) {
		fmt.Fprintln(w, "warning:", warning)
	}
	errs := []error{invalid}
	section := func(name string, err error) { errs = append(errs, origins.Section(name, err)) }
	deepIn := func(name string) bool { return deep && !conf.Concern(invalid, name) }
	clients, err := checkAPI(c.API)
	section("api", err)
	section("registry", errors.Join(c.Registry.Check(ctx, w, deepIn("registry")), checkFeeds(c.Registry.Feeds, clients)))
	section("forecasts", c.Forecasts.Check(ctx, deepIn("forecasts")))
	var consumers []string
	for _, s := range c.EnabledSinks() {
		consumers = append(consumers, s.Name)
		section(s.Name, s.Check(ctx, c, deepIn(s.Name)))
	}
	section("ui", c.UI.Check())
	section("journal", cmp.Or(checkDir("dir", c.Journal.Dir), checkDir("dir", c.Pipeline.Idempotency.Journal.Dir))) // the latter is below
	if deep && c.Journal.Kind == config.LocalJournal {
		section("journal", settingError("min_free_bytes", c.Journal.CheckSpace()))
	}
	if c.Journal.Kind == config.KafkaJournal {
		section("journal.log", c.Journal.Log.Check(ctx, consumers, c.Pipeline.Idempotency.Window, deepIn("journal.log")))
	}
	section("", checkDeadLetters(c))
	return errors.Join(errs...)
}

func checkAPI(c api.Config) (clients []*contract.Client, err error) {
	if c.Validate() != nil {
		c.Keys = nil // they may be invalid
	}
	keys, err := api.OpenKeyring(c, zerolog.Nop())
	if err != nil {
		err = fmt.Errorf("keys_file: %w", err)
	} else {
		clients = keys.Clients()
		keys.Close()
	}
	return clients, errors.Join(err, c.CheckCertificate())
}

// warnings returns what is allowed but dangerous outside tests and containers.
func warnings(c *config.Config) (list []string) {
	if len(c.EnabledSinks()) == 0 {
		list = append(list, noSinks())
	}
	if host, _, err := net.SplitHostPort(c.Ops.Listen); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			list = append(list, fmt.Sprintf("ops.listen: %s accepts connections from all networks, without a key: "+
				"let a firewall restrict them, or use 127.0.0.1", c.Ops.Listen))
		}
	}
	dirs := map[string]string{"journal.dir": c.Journal.Dir, "dead_letters": c.DeadLetters}
	if c.Journal.Kind == config.KafkaJournal { // of which only caches are in the directory
		delete(dirs, "journal.dir")
	}
	for _, key := range slices.Sorted(maps.Keys(dirs)) {
		if dir, err := filepath.Abs(dirs[key]); err == nil && isTemporary(dir) {
			list = append(list, fmt.Sprintf("%s: %s is in a temporary directory, whose files may be deleted: "+
				"what was accepted would be lost", key, dir))
		}
	}
	return list
}

// isTemporary reports whether the operating system may delete files in the directory, at the latest
// when it starts.
func isTemporary(dir string) bool {
	return slices.ContainsFunc([]string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm", "/run"}, func(parent string) bool {
		return strings.HasPrefix(dir+"/", filepath.Clean(parent)+"/")
	})
}

// checkFeeds returns an error for each key with the ingest right whose product instance has no
// feed. A list of many product instances may have any of them.
func checkFeeds(feeds []registry.FeedConfig, clients []*contract.Client) error {
	var errs []error
	for _, client := range clients {
		if client.May(contract.RightIngest) && !slices.ContainsFunc(feeds, func(f registry.FeedConfig) bool {
			return f.InstanceColumn != "" || f.ProductInstance == client.ProductInstance
		}) {
			errs = append(errs, fmt.Errorf("feeds: product instance %q: key %q has the ingest right, but %s",
				client.ProductInstance, client.Name, noFeed))
		}
	}
	return errors.Join(errs...)
}

// checkDeadLetters returns an error unless the daemon can write the dead-letter file. The journal's
// directory, which contains the file by default, may be missing, because the daemon creates it.
func checkDeadLetters(c *config.Config) error {
	if _, err := os.Stat(c.Journal.Dir); err != nil && filepath.Dir(c.DeadLetters) == filepath.Clean(c.Journal.Dir) {
		return nil // checked as journal.dir
	}
	return settingError("dead_letters", pipeline.NewDeadLetters(c.DeadLetters).Check())
}

// checkDir returns an error that starts with key unless the directory is writable or can be
// created.
func checkDir(key, dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
		return checkDir(key, filepath.Dir(dir))
	}
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s: %s is not a directory", key, dir)
	}
	if err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, &fs.PathError{Op: "cannot write to", Path: dir, Err: err})
	}
	return nil
}
