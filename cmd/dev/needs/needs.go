// Package needs skips tests that need more than Go, unless all tests are to run.
//
//	go test ./...                      runs what needs only Go: no network, no installed program, no real store
//	TRAFFICD_TEST=all go test ./...    runs everything; a program that is missing fails its test
//
// `make unit` runs the first, `make test`, `make race` and .ci/run the second.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// env is the name of the environment variable that selects the tests.
const env = "TRAFFICD_TEST"

// All reports whether all tests are to run.
func All() bool { return os.Getenv(env) == "all" }

// Long reports whether tests of random inputs are to try as many as in CI. Otherwise they try a
// tenth, as with the race detector (-short), which makes each ten times slower.
func Long() bool { return All() && !testing.Short() }

// Everything skips the test unless all tests are to run. The argument says what the test needs
// besides Go, such as "a real ClickHouse". It is not looked for, so that a test is skipped on all
// machines or on none.
func Everything(t testing.TB, what string) {
	t.Helper()
	if !All() {
		t.Skipf("needs %s, which tests use only with %s=all, as in `make test`", what, env)
	}
}

// Program returns the path of an installed program. If it is missing, the test is skipped, or fails
// if all tests are to run.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case All():
		t.Fatalf("cannot find %s: install what .ci/needs lists: %v", name, err)
	default:
		t.Skipf("needs the program %s, which is not installed", name)
	}
	return path
}
