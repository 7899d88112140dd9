package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"trafficd/cmd/chaos/internal/spoilt"
)

// Root is the folder at or above the working directory with this module's
// go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the module's root: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module trafficd\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("cannot find the module's root: run inside its tree")
		}
		dir = filepath.Dir(dir)
	}
}

// buildDaemon makes the daemon as it is shipped, but in a world that can be
// spoilt.
func buildDaemon(ctx context.Context, root, dir string) (string, error) {
	sources := filepath.Join(dir, "overlay")
	if err := os.MkdirAll(sources, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a folder for changed sources: %w", err)
	}
	overlay, err := spoilt.Overlay(ctx, sources)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "trafficd")
	return binary, build(ctx, root, overlay, "-o", binary, "./cmd/trafficd")
}

// buildToxiproxy makes the proxy, pinned by a module file of its own: nothing
// of it belongs into the product's go.mod.
func buildToxiproxy(ctx context.Context, root string) (string, error) {
	binary := filepath.Join(root, ".cache", "bin", "toxiproxy")
	return binary, build(ctx, root, "-modfile=.ci/toxiproxy.mod", "-o", binary, "github.com/Shopify/toxiproxy/v2/cmd/server")
}

func build(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", args[len(args)-1], err, said)
	}
	return nil
}
