package send

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInDoubt: what the daemon itself answers settles a batch, except that it is under way; what stands in between cannot know.
func TestInDoubt(t *testing.T) {
	f := func(err error, want bool) {
		t.Helper()
		require.Equal(t, want, inDoubt(err), "%v", err)
	}
	f(&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false)
	f(&url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: errors.New("no route to host")}}, false)
	f(&net.OpError{Op: "read", Err: errors.New("connection reset")}, true)
	f(io.ErrUnexpectedEOF, true)
	f(&RefusedError{Status: http.StatusServiceUnavailable, ErrorCode: "GENERAL_SERVICE_UNAVAILABLE"}, false)
	f(&RefusedError{Status: http.StatusBadRequest, ErrorCode: "INVALID_JSON"}, false)
	f(&RefusedError{Status: http.StatusConflict, ErrorCode: "IDEMPOTENCY_KEY_IN_USE"}, true)
	f(&RefusedError{Status: http.StatusGatewayTimeout}, true)
	f(&RefusedError{Status: http.StatusBadGateway}, true)
}
