package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
)

func TestClassify(t *testing.T) {
	f := func(want class, err error) {
		t.Helper()
		require.Equal(t, want, classify(err))
		require.Equal(t, want, classify(fmt.Errorf("cannot insert: %w", hinted(err))))
		require.Contains(t, errorsTotal, want)
	}
	exception := func(code int32) error { return &ch.Exception{Code: code} }
	f(classOverload, exception(252))
	f(classOverload, exception(241))
	f(classReadOnly, exception(164))
	f(classReadOnly, exception(242))
	f(classReadOnly, exception(774))
	f(classOverload, exception(745))
	f(classNetwork, exception(101))
	f(classOther, exception(117)) // of a broken stream, or of a value: not final
	f(classTimeout, exception(159))
	f(classNetwork, exception(210))
	f(classSchema, exception(60))
	f(classAuth, exception(516))
	f(classQuorum, exception(285))
	f(classQuorum, exception(319))
	f(classDisk, exception(243))
	f(classOther, exception(49))
	f(classOther, exception(99_999))
	f(classRefused, exception(469))
	f(classTimeout, context.DeadlineExceeded)
	f(classTimeout, ch.ErrAcquireConnTimeout)
	f(classTimeout, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	f(classCancelled, context.Canceled)
	f(classNetwork, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	f(classNetwork, io.EOF)
	f(classNetwork, io.ErrUnexpectedEOF)
	f(classNetwork, syscall.EPIPE)
	f(classSchema, errSchema)
	f(classOther, errors.New("something"))
}

// TestRefusedIsRare: a failure that is wrongly final loses rows to the
// dead-letter file, one that is wrongly not final only waits. So the list of
// final ones is written down twice.
func TestRefusedIsRare(t *testing.T) {
	var final []int32
	for number, c := range codes {
		if c.class == classRefused {
			final = append(final, number)
		}
	}
	require.ElementsMatch(t, []int32{6, 27, 38, 41, 69, 72, 128, 131, 135, 153, 321, 376, 395, 407, 441, 467, 469, 675, 676, 691}, final)
	for _, c := range codes {
		require.Contains(t, hints, c.class)
	}
}

// TestCodesBearTheServersNames compares the table with what the server calls
// its codes.
func TestCodesBearTheServersNames(t *testing.T) {
	store := stores.StartClickHouse(t)
	names := map[int32]string{}
	for line := range strings.Lines(store.Query(t, "SELECT number, errorCodeToName(number) FROM numbers(1010)")) {
		var number int32
		var name string
		_, _ = fmt.Sscan(line, &number, &name) // most numbers have no name
		names[number] = name
	}
	require.Equal(t, "MEMORY_LIMIT_EXCEEDED", names[241])
	for number, c := range codes {
		if name := names[number]; name != "" { // an older server does not know all of them
			require.Equal(t, c.name, name)
		}
	}
}
