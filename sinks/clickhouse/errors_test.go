package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/dial"
)

func TestClassify(t *testing.T) {
	f := func(want class, err error) {
		t.Helper()
		require.Equal(t, want, classify(err))
		require.Equal(t, want, classify(fmt.Errorf("cannot insert: %w", hinted(err))))
		require.Contains(t, hints, want)
	}
	exception := func(code int32) error { return &ch.Exception{Code: code} }
	f(classOverload, exception(252))
	f(classMemory, exception(241))
	f(classReadOnly, exception(164))
	f(classReadOnly, exception(242))
	f(classReadOnly, exception(774))
	f(classOverload, exception(745))
	f(classNetwork, exception(101))
	f(classOther, exception(117)) // caused by a broken stream or by a value, so not permanent
	f(classTimeout, exception(159))
	f(classNetwork, exception(210))
	f(classSchema, exception(60))
	f(classAuth, exception(516))
	f(classQuorum, exception(285))
	f(classQuorum, exception(319))
	f(classDisk, exception(243))
	f(classOther, exception(49))
	f(classOther, exception(99_999))
	f(classRejected, exception(469))
	f(classTimeout, context.DeadlineExceeded)
	f(classTimeout, ch.ErrAcquireConnTimeout)
	f(classTimeout, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	f(classCancelled, context.Canceled)
	f(classNetwork, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	f(classNetwork, io.EOF)
	f(classNetwork, io.ErrUnexpectedEOF)
	f(classNetwork, syscall.EPIPE)
	f(classNetwork, fmt.Errorf("%w: unexpected packet [72]", dial.ErrHandshake))
	f(classTimeout, fmt.Errorf("%w: %w", dial.ErrHandshake, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}))
	f(classSchema, errSchema)
	f(classOther, errors.New("something"))
}

// TestPermanentErrors lists the permanent errors a second time: if an error were permanent by
// mistake, rows would become dead letters, whereas retrying a permanent error only causes a delay.
func TestPermanentErrors(t *testing.T) {
	require.ElementsMatch(t, []int32{6, 27, 38, 41, 69, 72, 128, 131, 135, 153, 321, 376, 395, 407, 441, 467, 469, 675, 676, 691},
		slices.Collect(maps.Keys(codes[classRejected])))
	for c := range codes {
		require.Contains(t, hints, c)
	}
}
