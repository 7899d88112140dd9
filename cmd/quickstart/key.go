package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trafficd/cmd/internal/must"
	"trafficd/sources/api"
)

const (
	instance = "quickstart" // the product instance of the key and the registry
	keysFile = "keys.yaml"

	// The key in clear text, and as a header for curl. Only a demonstration should store it.
	keyFile    = "key"
	headerFile = "auth"
)

// rights lists the rights of the key, which the printed commands need.
var rights = []string{"ingest", "forecast", "routing"}

// makeKey reuses the API key of an earlier start. If there is none with all rights, it adds one to
// the keys file. It never changes or removes entries.
func (q *quickstart) makeKey(ctx context.Context) (err error) {
	defer must.Return(&err, "cannot create the API key")
	text, err := os.ReadFile(q.path(keysFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the keys: %w", err)
	}
	var file struct{ Keys []api.KeyEntry }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("cannot read the keys in %s: %w; correct or remove the file", q.path(keysFile), err)
	}
	key, _ := os.ReadFile(q.path(keyFile)) // without it, there is no earlier key
	q.key = strings.TrimSpace(string(key))
	digest, usable, names := fmt.Sprintf("%x", sha256.Sum256([]byte(q.key))), false, map[string]bool{}
	for _, k := range file.Keys {
		names[k.Name] = true
		lacks := func(right string) bool { return !slices.Contains(k.Rights, right) }
		usable = usable || k.SHA256 == digest && k.ProductInstance == instance && !slices.ContainsFunc(rights, lacks)
	}
	if !usable {
		say("creating an API key")
		name := instance
		for n := 2; names[name]; n++ {
			name = fmt.Sprint(instance, "-", n)
		}
		out, _, err := q.trafficctl(ctx, nil, "key", "new", "--name", name, "--product-instance", instance,
			"--rights", strings.Join(rights, ","), "--file", q.path(keysFile))
		if err != nil {
			return err
		}
		q.key, _, _ = strings.Cut(out, "\n")
	}
	must.Do(os.WriteFile(q.path(keyFile), []byte(q.key+"\n"), 0o600))
	must.Do(os.WriteFile(q.path(headerFile), []byte("Authorization: apiKey "+q.key+"\n"), 0o600))
	return nil
}
