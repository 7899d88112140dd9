package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/client"
)

// Environment variables that replace flags.
const (
	envKey = "TRAFFICD_KEY"
	envURL = "TRAFFICD_URL"
)

// connection holds the flags of all commands that connect to a daemon.
type connection struct {
	cfg     client.Config
	keyFile string
	quiet   bool
}

func (c *connection) register(f *pflag.FlagSet, right string) {
	c.cfg = client.DefaultConfig()
	f.StringVar(&c.cfg.URL, "url", c.cfg.URL, "base URL of the daemon; defaults to $"+envURL)
	f.StringVar(&c.cfg.Key, "key", "", "API key with the right "+right+"; visible to other users of this machine, prefer --key-file or $"+envKey)
	f.StringVar(&c.keyFile, "key-file", "", "file with the API key in its first line")
	f.StringVar(&c.cfg.CA, "ca", "", "PEM file of the certificate authorities to trust instead of the system's")
	f.DurationVar(&c.cfg.Timeout, "timeout", c.cfg.Timeout, "time limit of a request, including its response")
	f.BoolVar(&c.quiet, "quiet", false, "print no progress on standard error")
}

// config completes the settings from the environment and the key file. A flag takes precedence over
// the key file, and that over the environment.
func (c *connection) config(flags *pflag.FlagSet) (client.Config, error) {
	cfg := c.cfg
	if url := os.Getenv(envURL); url != "" && !flags.Changed("url") {
		cfg.URL = url
	}
	switch {
	case cfg.Key != "" && c.keyFile != "":
		return cfg, errors.New("use either --key or --key-file, not both")
	case cfg.Key != "":
		return cfg, nil
	case c.keyFile == "":
		cfg.Key = os.Getenv(envKey)
		return cfg, nil
	}
	text, err := os.ReadFile(c.keyFile)
	if err != nil {
		return cfg, fmt.Errorf("cannot read the key (--key-file): %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if cfg.Key = strings.TrimSpace(first); cfg.Key == "" {
		return cfg, fmt.Errorf("the first line of --key-file %s is empty; it must be the API key", c.keyFile)
	}
	return cfg, nil
}
