package api

import (
	"encoding/hex"
	"math/rand/v2"
)

const traceHeader = "Trace-Id"

var traceHeaderName = []byte(traceHeader)

// trace is a trace id, in 32 lower-case hexadecimal digits. It is not a string, because that would be
// allocated.
type trace [32]byte

func (t *trace) String() string { return string(t[:]) }

// traceID returns the trace id of a W3C traceparent header (version-traceid-parentid-flags), so that a
// client finds its own trace in the log; without a valid header it returns a new id.
func traceID(parent []byte) trace {
	if len(parent) >= 55 && parent[2] == '-' && parent[35] == '-' && parent[52] == '-' && validTrace(parent[3:35]) {
		return trace(parent[3:35])
	}
	return newTrace()
}

func newTrace() (text trace) {
	var id [16]byte
	for i := 0; i < len(id); i += 8 {
		for j, r := 0, rand.Uint64(); j < 8; j, r = j+1, r>>8 {
			id[i+j] = byte(r)
		}
	}
	hex.Encode(text[:], id[:])
	return text
}

// validTrace reports whether id is lower-case hexadecimal digits that are not all zero.
func validTrace(id []byte) bool {
	some := false
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		some = some || c != '0'
	}
	return some
}
