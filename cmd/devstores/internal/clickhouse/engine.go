package clickhouse

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// The kinds of engine.
const (
	KindAuto    = "auto"              // KindServer where it is installed and not too old, else KindLibrary
	KindServer  = "clickhouse-server" // the program `clickhouse` on PATH
	KindLibrary = "libchdb"           // the engine as a shared library, fetched once
)

// Kinds are the values of Config.Kind.
var Kinds = []string{KindAuto, KindServer, KindLibrary}

// oldest is the first year of releases with everything that the tables use (deduplication windows of plain MergeTree among it).
// Distributions carry much older ones.
const oldest = 24

// engine is a way to run ClickHouse.
type engine struct {
	kind    string
	program string // the program, or the library's file
}

func chooseEngine(ctx context.Context, cfg Config) (engine, error) {
	switch cfg.Kind {
	case KindServer:
		program, err := findServer(ctx)
		return engine{KindServer, program}, err
	case KindLibrary:
		return fetchedEngine(ctx, cfg)
	case KindAuto:
		if program, err := findServer(ctx); err == nil {
			return engine{KindServer, program}, nil
		}
		return fetchedEngine(ctx, cfg)
	default:
		return engine{}, fmt.Errorf("cannot run a ClickHouse of kind %q: give one of %v", cfg.Kind, Kinds)
	}
}

func fetchedEngine(ctx context.Context, cfg Config) (engine, error) {
	library, err := fetchLibrary(ctx, cfg.Progress)
	return engine{KindLibrary, library}, err
}

var versionNumber = regexp.MustCompile(`\b(\d+)\.\d+\.\d+`)

// findServer returns the program clickhouse of PATH if it is young enough.
func findServer(ctx context.Context) (string, error) {
	program, err := exec.LookPath("clickhouse")
	if err != nil {
		return "", fmt.Errorf("cannot find a ClickHouse server: %w", err)
	}
	said, err := exec.CommandContext(ctx, program, "server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its version: %w", program, err)
	}
	number := versionNumber.FindSubmatch(said)
	if number == nil {
		return "", fmt.Errorf("cannot read a version in what %s says: %q", program, said)
	}
	if year, _ := strconv.Atoi(string(number[1])); year < oldest {
		return "", fmt.Errorf("cannot use %s: its version %s is older than %d.1", program, number[0], oldest)
	}
	return program, nil
}

// command is the command line that serves home on the ports of cfg until it is stopped.
func (e engine) command(home home, cfg Config) *exec.Cmd {
	config := "--config-file=" + home.path("config.xml")
	if e.kind == KindLibrary {
		cmd := libraryCommand(e.program,
			"--path="+home.path("data"), "--listen_host=127.0.0.1",
			fmt.Sprintf("--http_port=%d", cfg.HTTP), fmt.Sprintf("--tcp_port=%d", cfg.TCP),
			"--log-level=warning", config)
		cmd.Env = append(cmd.Environ(), "TZ=UTC") // it does not heed the configuration's time zone
		return cmd
	}
	cmd := exec.Command(e.program, "server", config)
	cmd.Dir = string(home) // it drops files into its working directory
	// Without the watchdog there is one process: the one that the death signal reaches.
	cmd.Env = append(cmd.Environ(), "CLICKHOUSE_WATCHDOG_ENABLE=0")
	return cmd
}
