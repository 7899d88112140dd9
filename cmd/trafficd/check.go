package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"trafficd/cmd/trafficd/config"
	"trafficd/sources/api"
)

// checkFiles returns everything that is wrong with the files and folders that settings name. It creates
// and connects to nothing.
func checkFiles(c *config.Config) error {
	var errs []error
	check := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if keys, err := api.OpenKeyring(c.API, zerolog.Nop()); err == nil {
		keys.Close()
	} else {
		check("api.keys_file", err)
	}
	if c.API.TLSCert != "" {
		_, err := tls.LoadX509KeyPair(c.API.TLSCert, c.API.TLSKey)
		check("api.tls_cert, api.tls_key", err)
	}
	for _, f := range c.Registry.Feeds {
		if f.File != nil {
			if err := unix.Access(f.File.Path, unix.R_OK); err != nil {
				check("registry.feeds", fmt.Errorf("cannot read %s: %w", f.File.Path, err))
			}
		}
	}
	for _, s := range sinks {
		if s.enabled(c) {
			store, err := s.open(c, zerolog.Nop()) // reads the certificates
			if err == nil {
				err = store.Close()
			}
			check(s.name, err)
		}
	}
	check("journal.dir", creatable(c.Journal.Dir))
	check("pipeline.idempotency.journal.dir", creatable(c.Pipeline.Idempotency.Journal.Dir))
	check("dead_letters", creatable(filepath.Dir(c.DeadLetters)))
	return errors.Join(errs...)
}

// creatable returns why a folder neither exists nor can be created.
func creatable(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
		return creatable(filepath.Dir(dir))
	}
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("cannot write to %s: %w", dir, err)
	}
	return nil
}
