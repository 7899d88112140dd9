package api

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

var headerExpect = []byte(fasthttp.HeaderExpect)

// said is what a request's headers say to this package. They are gone over once: fasthttp's
// Peek makes the name canonical and goes over them each time.
type said struct {
	authorization  []byte // the last one
	authorizations int
	traceparent    []byte
	close          bool // Connection names the option close
}

func saidIn(h *fasthttp.RequestHeader) (s said) {
	for name, value := range h.All() {
		switch string(name) {
		case fasthttp.HeaderAuthorization:
			s.authorization, s.authorizations = value, s.authorizations+1
		case "Traceparent":
			s.traceparent = value
		case fasthttp.HeaderConnection:
			s.close = s.close || namesClose(value)
		}
	}
	return s
}

// namesClose finds the option close in any case and beside others; fasthttp knows only
// the bare word.
func namesClose(connection []byte) bool {
	for option := range bytes.SplitSeq(connection, []byte{','}) {
		if bytes.EqualFold(bytes.TrimSpace(option), []byte("close")) {
			return true
		}
	}
	return false
}
