package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"trafficd/cmd/internal/must"
)

// ModuleRoot returns the directory with this module's go.mod, at or above the working directory.
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

// Build runs go build in the module's root, without cgo. The last argument must be a package.
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

var devstores struct {
	sync.Mutex
	binary string
}

// BuildDevstores builds .cache/bin/devstores, once per process, and returns its path. This does not
// affect processes that run an earlier build, because go build either leaves the file unchanged or
// removes it and writes a new one.
func BuildDevstores(ctx context.Context) (binary string, err error) {
	defer must.Return(&err, "cannot build devstores")
	devstores.Lock()
	defer devstores.Unlock()
	if devstores.binary != "" {
		return devstores.binary, nil
	}
	binary = filepath.Join(must.Get(ModuleRoot()), ".cache", "bin", "devstores")
	must.Do(os.MkdirAll(filepath.Dir(binary), 0o755))
	defer must.Get(Lock(ctx, binary+".lock", nil))()
	must.Do(Build(ctx, "-buildvcs=false", "-o", binary, "./cmd/devstores"))
	devstores.binary = binary
	return binary, nil
}
