package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// ModuleRoot returns the directory at or above the working directory with this module's go.mod.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the module's root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module trafficd\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("cannot find the root of module trafficd at or above %s: run inside its tree", start)
		}
	}
}

// Build runs go build in the module's root, without cgo. The last argument is the package.
func Build(ctx context.Context, args ...string) error {
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s in %s: %w\n%s", args[len(args)-1], root, err, out)
	}
	return nil
}

var built struct {
	sync.Mutex
	devstores string
}

// BuildDevstores builds .cache/bin/devstores, once in this process, and returns its path.
func BuildDevstores(ctx context.Context) (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.devstores != "" {
		return built.devstores, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(root, ".cache", "bin", "devstores")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", fmt.Errorf("cannot build devstores: %w", err)
	}
	unlock, err := Lock(ctx, binary+".lock", nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	// Other processes may be running the binary. go build leaves an up-to-date file unchanged (0.3 s instead of seconds
	// of linking); only a new one replaces the binary, by rename.
	next := binary + ".next"
	if err := Build(ctx, "-buildvcs=false", "-o", next, "./cmd/devstores"); err != nil {
		return "", err
	}
	have, err := os.Stat(binary)
	want, wantErr := os.Stat(next)
	if err != nil || wantErr != nil || want.ModTime().After(have.ModTime()) {
		if err := replace(binary, next); err != nil {
			return "", fmt.Errorf("cannot install devstores: %w", err)
		}
	}
	built.devstores = binary
	return binary, nil
}

// replace copies next over binary.
func replace(binary, next string) error {
	src, err := os.Open(next)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.CreateTemp(filepath.Dir(binary), "devstores-")
	if err != nil {
		return err
	}
	defer os.Remove(dst.Name()) // does nothing after the rename
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Chmod(0o755)
	}
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(dst.Name(), binary)
}
