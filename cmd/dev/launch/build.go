package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"trafficd/cmd/dev/must"
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

// ProgramsEnv is the name of the environment variable that holds the directory of the commands that
// were built before, so that the tests of all packages share one build.
const ProgramsEnv = "TRAFFICD_PROGRAMS"

var programs struct {
	sync.Mutex
	paths map[string]string // by name
}

// Program returns the path of a command of this module, such as "trafficd". Unless
// TRAFFICD_PROGRAMS names the directory that has it, Program builds .cache/bin/<name>, once per
// process. This does not affect processes that run an earlier build, because go build either leaves
// the file unchanged or removes it and writes a new one.
func Program(ctx context.Context, name string) (binary string, err error) {
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		binary = filepath.Join(dir, name)
		if _, err := os.Stat(binary); err != nil { // the cache of go test also considers files on which tests call Stat
			return "", fmt.Errorf("cannot find %s in the directory of %s: %w", name, ProgramsEnv, err)
		}
		return binary, nil
	}
	defer must.Return(&err, "cannot build "+name)
	programs.Lock()
	defer programs.Unlock()
	if binary, ok := programs.paths[name]; ok {
		return binary, nil
	}
	binary = filepath.Join(must.Get(ModuleRoot()), ".cache", "bin", name)
	must.Do(os.MkdirAll(filepath.Dir(binary), 0o755))
	defer must.Get(Lock(ctx, binary+".lock", nil))()
	source := "./cmd/" + name
	if name == "devstores" || name == "quickstart" {
		source = "./cmd/dev/" + name
	}
	must.Do(Build(ctx, "-buildvcs=false", "-o", binary, source))
	if programs.paths == nil {
		programs.paths = map[string]string{}
	}
	programs.paths[name] = binary
	return binary, nil
}
