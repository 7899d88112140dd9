package send

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// RefusedError is an answer other than 207: nothing of the batch was taken
// (contract 1.1).
type RefusedError struct {
	Status      int    `json:"-"`
	Description string `json:"description"`
	ErrorCode   string `json:"errorCode"`
	TraceID     string `json:"traceId"`

	after time.Duration // the daemon's Retry-After; 0: none
}

// Error implements error: what the daemon said, and what to do.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("the daemon answered %d", e.Status)
	if e.ErrorCode != "" {
		text += " " + e.ErrorCode
	}
	text += ": " + e.Description
	if e.TraceID != "" {
		text += " (trace " + e.TraceID + ")"
	}
	if hint := hints[e.Status]; hint != "" {
		text += "; " + hint
	}
	return text
}

var hints = map[int]string{
	http.StatusBadRequest:            "is --url the daemon's own, with nothing in between that changes bodies?",
	http.StatusUnauthorized:          "check the key (--key, --key-file, TRAFFICD_KEY) and that the daemon's keys file has its digest (trafficctl key new)",
	http.StatusForbidden:             "the key needs the right `ingest` in the daemon's keys file",
	http.StatusNotFound:              "check --url: it is the base URL, with its path prefix if the daemon has one",
	http.StatusMethodNotAllowed:      "check --url: something else than the daemon listens there",
	http.StatusRequestEntityTooLarge: "use a smaller --batch, or raise the daemon's limits",
	http.StatusUnsupportedMediaType:  "something between here and the daemon seems to unpack requests",
	http.StatusUnprocessableEntity:   "the batch's key was used for another body: run the command again",
}

// mayHelp tells whether the same request may succeed later. A transport error
// leaves open whether the batch was taken; the Idempotency-Key makes repeating
// it safe. One table for all answers, so that none is decided elsewhere.
func mayHelp(err error) bool {
	var r *RefusedError
	if !errors.As(err, &r) {
		return !errors.Is(err, errOddAnswer)
	}
	switch r.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return r.Status >= 500
}

// inDoubt tells whether a failed attempt leaves open if the batch was taken:
// it was on its way and there was no answer, or one that says that another
// attempt is under way, or one without a code of ours: by a proxy in between.
func inDoubt(err error) bool {
	var r *RefusedError
	if errors.As(err, &r) {
		return r.Status == http.StatusConflict || r.ErrorCode == ""
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// Pauses between attempts double from the first to the longest.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// pause is how long to wait before attempt n+1 (n counts from 1): exponential,
// between half and the whole of it by chance (a number in [0,1)), so that many
// clients do not come back together; never less than the daemon asked for.
func pause(n int, chance float64, err error) time.Duration {
	full := min(longestPause, firstPause<<min(n-1, 10))
	wait := full/2 + time.Duration(chance*float64(full/2))
	var r *RefusedError
	if errors.As(err, &r) && r.after > 0 {
		wait = max(wait, r.after+time.Duration(chance*float64(time.Second)))
	}
	return wait
}
