package clickhouse

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// LibraryCommand is the hidden subcommand of this very program that becomes the engine; see [RunLibrary].
const LibraryCommand = "serve-libchdb"

// serveStatements open the listeners, then wait on the lifeline (standard input): the server lives as long as the last statement runs, and
// that ends at the end of file.
const serveStatements = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT count() FROM file('/proc/self/fd/0', LineAsString)"

// libraryCommand runs library in a child with the arguments of clickhouse-local: a crash of the engine, and its signal
// handlers, stay out of our process.
func libraryCommand(library string, args ...string) *exec.Cmd {
	args = append([]string{LibraryCommand, library}, args...)
	return exec.Command("/proc/self/exe", append(args, "--query="+serveStatements)...)
}

// RunLibrary loads the library args[0] and runs clickhouse-local's main with the other arguments until it returns.
func RunLibrary(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("cannot run the engine: %s wants the library's file as its first argument", LibraryCommand)
	}
	// A terminal sends Ctrl-C to the whole group; the parent stops us in its own order, through the lifeline.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	runtime.LockOSThread() // main() of a C++ program expects to stay on one thread
	lib, err := purego.Dlopen(args[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("cannot load the engine (it needs glibc on Linux), remove %s to fetch it again: %w", args[0], err)
	}
	var run func(argc int32, argv unsafe.Pointer) uintptr
	purego.RegisterLibFunc(&run, lib, "chdb_query_cmdline")
	argv := cStrings(append([]string{"clickhouse"}, args[1:]...))
	run(int32(len(argv)-1), unsafe.Pointer(&argv[0]))
	runtime.KeepAlive(argv)
	os.Exit(0) // no destructors of a library with running threads
	return nil
}

// cStrings lays args out as argv of C: pointers to bytes that end with 0, and a nil at the end.
func cStrings(args []string) []*byte {
	var argv []*byte
	for _, arg := range args {
		argv = append(argv, unsafe.SliceData(append([]byte(arg), 0)))
	}
	return append(argv, nil)
}
