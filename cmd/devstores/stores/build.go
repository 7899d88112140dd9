package stores

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"trafficd/cmd/devstores/internal/cache"
	"trafficd/cmd/devstores/internal/filelock"
)

var built struct {
	sync.Mutex
	binary string
}

// Build makes .cache/bin/devstores of the module, once in this process, and returns its path.
func Build(ctx context.Context) (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.binary != "" {
		return built.binary, nil
	}
	root, err := cache.ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("cannot build devstores: %w", err)
	}
	binary := filepath.Join(root, ".cache", "bin", "devstores")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", fmt.Errorf("cannot build devstores: %w", err)
	}
	unlock, err := filelock.Take(ctx, binary+".lock", nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := refresh(ctx, root, binary); err != nil {
		return "", err
	}
	built.binary = binary
	return binary, nil
}

// refresh builds beside the binary, which others may be running: go build leaves a file that is up to date as it is (0.3 s instead of
// a link of several), and only a new one replaces the binary, by a rename.
func refresh(ctx context.Context, root, binary string) error {
	next := binary + ".next"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", next, "./cmd/devstores")
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0") // no C compiler wanted: purego loads the library without
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build devstores in %s: %w\n%s", root, err, said)
	}
	if upToDate(binary, next) {
		return nil
	}
	return replace(binary, next)
}

func upToDate(binary, next string) bool {
	have, err := os.Stat(binary)
	if err != nil {
		return false
	}
	want, err := os.Stat(next)
	return err == nil && !want.ModTime().After(have.ModTime())
}

func replace(binary, next string) error {
	src, err := os.Open(next)
	if err != nil {
		return fmt.Errorf("cannot install devstores: %w", err)
	}
	defer src.Close()
	dst, err := os.CreateTemp(filepath.Dir(binary), "devstores-")
	if err != nil {
		return fmt.Errorf("cannot install devstores: %w", err)
	}
	defer os.Remove(dst.Name()) // does nothing after the rename
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Chmod(0o755)
	}
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(dst.Name(), binary)
	}
	if err != nil {
		return fmt.Errorf("cannot install devstores: %w", err)
	}
	return nil
}
