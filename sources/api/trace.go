package api

import (
	"bytes"
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
	const size = 55
	if len(parent) < size || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return newTrace()
	}
	version, id, span, flags := parent[:2], parent[3:35], parent[36:52], parent[53:size]
	more := len(parent) > size && (string(version) == "00" || parent[size] != '-') // later versions may have more parts
	if more || !isHex(version) || string(version) == "ff" || !isHex(flags) || !validTrace(id) || !validTrace(span) {
		return newTrace()
	}
	return trace(id)
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
	return isHex(id) && len(bytes.Trim(id, "0")) > 0
}

func isHex(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
