package clickhouse

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"trafficd/cmd/dev/devstores/internal/clickhouse/replication"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// The kinds of engine.
const (
	KindServer  = "clickhouse-server" // the program `clickhouse` on PATH
	KindLibrary = "libchdb"           // ClickHouse as a shared library, downloaded once
)

// oldest is the year of the oldest supported release. The older releases that distributions package
// lack features that the tables use, such as deduplication windows of plain MergeTree.
const oldest = 24

// engine is a way to run ClickHouse.
type engine struct {
	kind    string
	program string // path of the program or the library
}

// Fetch downloads the engine if it is needed and not in the cache.
func Fetch(ctx context.Context, opts launch.Options) error {
	_, err := chooseEngine(ctx, opts)
	return err
}

// chooseEngine returns the installed server if it is recent enough, and otherwise the library.
func chooseEngine(ctx context.Context, opts launch.Options) (engine, error) {
	if program, err := findServer(ctx); err == nil {
		return engine{KindServer, program}, nil
	}
	library, err := fetchLibrary(ctx, opts.Stderr)
	return engine{KindLibrary, library}, err
}

var versionNumber = regexp.MustCompile(`\b(\d+)\.\d+\.\d+`)

// findServer returns the path of the program clickhouse on PATH, or an error if it is too old.
func findServer(ctx context.Context) (program string, err error) {
	defer must.Return(&err)
	program, err = exec.LookPath("clickhouse")
	must.Do(err, "cannot find a ClickHouse server")
	out, err := exec.CommandContext(ctx, program, "server", "--version").Output()
	must.Do(err, "cannot get the version of "+program)
	number := versionNumber.FindSubmatch(out)
	if number == nil {
		return "", fmt.Errorf("cannot find a version in the output of %s: %q", program, out)
	}
	if year, _ := strconv.Atoi(string(number[1])); year < oldest {
		return "", fmt.Errorf("cannot use %s: its version %s is older than %d.1", program, number[0], oldest)
	}
	return program, nil
}

// command returns the command that serves home on the given ports. For a node of a cluster, it
// ignores the HTTP port; see [RunLibrary].
func (e engine) command(home home, tcp, http int, opts launch.Options) *exec.Cmd {
	config := "--config-file=" + home.path("config.xml")
	if e.kind == KindServer {
		cmd := exec.Command(e.program, "server", config)
		cmd.Dir = string(home) // it writes files to its working directory
		// Without the watchdog, there is only one process, which receives the death signal.
		cmd.Env = append(cmd.Environ(), "CLICKHOUSE_WATCHDOG_ENABLE=0")
		return cmd
	}
	// The engine runs in a child process, so that its crashes and its signal handlers do not affect
	// devstores.
	self := "/proc/self/exe" // this build, even if the file has been replaced by a newer one
	if runtime.GOOS != "linux" {
		self, _ = os.Executable() // after an error, Start fails because of the empty path
	}
	replication := "" // host:port at which the other replicas reach this one
	if c := opts.Cluster; c != nil {
		http, replication = c.Interserver, opts.Host.Endpoint(c.Interserver).String()
	}
	cmd := exec.Command(self, LibraryCommand, e.program, replication,
		"--path="+home.path("data"), "--listen_host="+opts.Host.Endpoint(tcp).Host,
		fmt.Sprintf("--http_port=%d", http), fmt.Sprintf("--tcp_port=%d", tcp),
		"--log-level=warning", config, "--query="+serveStatements)
	cmd.Env = append(cmd.Environ(), "TZ=UTC") // the engine ignores the configuration's time zone
	return cmd
}

// LibraryCommand is the name of the hidden subcommand that calls [RunLibrary].
const LibraryCommand = "serve-libchdb"

// serveStatements starts the listeners and then reads the lifeline (standard input) until it is
// closed. The server runs until the last statement ends.
const serveStatements = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT count() FROM file('/dev/stdin', LineAsString)"

// RunLibrary loads the library args[0] and runs clickhouse-local's main with args[2:] until it
// returns. If args[1] is not empty, it is the address of a node of a cluster, and the HTTP listener
// serves the other replicas instead of queries.
func RunLibrary(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s: missing arguments: path of the library, address for replication", LibraryCommand)
	}
	// A terminal sends Ctrl-C to the whole group, but the parent stops this process through the
	// lifeline.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	runtime.LockOSThread() // main() of a C++ program expects to stay on one thread
	lib, err := purego.Dlopen(args[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("cannot load the engine (it needs glibc on Linux; remove %s to download it again): %w", args[0], err)
	}
	if args[1] != "" {
		if err := replication.Enable(args[0], args[1]); err != nil {
			return err
		}
	}
	var run func(argc int32, argv unsafe.Pointer) uintptr
	purego.RegisterLibFunc(&run, lib, "chdb_query_cmdline")
	var argv []*byte // as in C: NUL-terminated strings, and a null pointer
	for _, arg := range append([]string{"clickhouse"}, args[2:]...) {
		argv = append(argv, unsafe.SliceData(append([]byte(arg), 0)))
	}
	argv = append(argv, nil)
	run(int32(len(argv)-1), unsafe.Pointer(&argv[0]))
	runtime.KeepAlive(argv)
	os.Exit(0) // skips the destructors of the library, whose threads are still running
	return nil
}
