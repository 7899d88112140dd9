package needs_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// recorder records how a test ends. Methods that it does not have panic.
type recorder struct {
	testing.TB
	end string
}

func (*recorder) Helper()                     {}
func (r *recorder) Skipf(f string, a ...any)  { r.stop("skip", f, a) }
func (r *recorder) Fatalf(f string, a ...any) { r.stop("fail", f, a) }

func (r *recorder) stop(how, format string, args []any) {
	r.end = how + ": " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestNeeds(t *testing.T) {
	f := func(mode string, need func(testing.TB), want string) {
		t.Helper()
		t.Setenv("TRAFFICD_TEST", mode)
		r, done := &recorder{}, make(chan struct{})
		go func() {
			defer close(done)
			need(r)
		}()
		<-done
		if want == "" {
			require.Empty(t, r.end)
			return
		}
		require.Contains(t, r.end, want)
	}
	store := func(t testing.TB) { needs.Everything(t, "a real ClickHouse") }
	missing := func(t testing.TB) { needs.Program(t, "no-such-program") }
	f("", store, "skip: needs a real ClickHouse, which tests use only with TRAFFICD_TEST=all")
	f("all", store, "")
	f("", missing, "skip: needs the program no-such-program, which is not installed")
	f("all", missing, "fail: cannot find no-such-program: install what .ci/needs lists")
	f("", func(t testing.TB) { needs.Program(t, "go") }, "")
}
