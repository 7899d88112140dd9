package xroute

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEnvelope checks that reading an invalid envelope returns an Error with a kind, and that a
// valid message does not change when it is written, read and written again.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(pointText))
	for _, in := range everyInstance() {
		if in.typ.message {
			text, err := AppendMessage(nil, in.value.Addr().Interface().(Message))
			require.NoError(f, err)
			f.Add(text)
		}
	}
	text, err := AppendMessage(nil, fault(CodeInvalidKML))
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`))

	limits := Limits{Bytes: 64 << 10, Depth: 16, Attributes: 16}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := read(bytes.NewReader(text), limits)
		if err != nil {
			var wrong *Error
			require.True(t, errors.As(err, &wrong), "%v", err)
			require.NotZero(t, wrong.Kind)
			require.NotEmpty(t, wrong.Reason)
			return
		}
		first := appendAny(t, m)
		again, err := read(bytes.NewReader(first), Limits{})
		require.NoError(t, err)
		require.Equal(t, string(first), string(appendAny(t, again)))
	})
}

func appendAny(t *testing.T, m Message) []byte {
	text, err := AppendMessage(nil, m)
	require.NoError(t, err)
	return text
}
