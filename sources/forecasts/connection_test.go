package forecasts

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopicAtAnotherServer: what answers is no broker. The client is told so, and takes no memory for it.
func TestTopicAtAnotherServer(t *testing.T) {
	f := func(says, want string) {
		t.Helper()
		feed, _ := run(t, topicConfig("f", serverThatSays(t, says, plainly)))
		waitForError(t, feed, want)
		feed.Close()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", `is no broker, or wants TLS: its answer begins with "HTTP"`)
	f("\x15\x03\x03\x00\x02\x02\x46", "is no broker, or wants TLS") // an alert of TLS
	f("SSH-2.0-OpenSSH_9.2\r\n", `begins with "SSH-"`)
	f("", "EOF")
	f("HT", "EOF")
	cfg := topicConfig("f", serverThatSays(t, "HTTP/1.1 400 Bad Request\r\n\r\n", encrypting(t)))
	cfg.Kafka.TLS = TLS{Enabled: true, InsecureSkipVerify: true}
	feed, _ := run(t, cfg)
	waitForError(t, feed, `begins with "HTTP"`)
	feed.Close()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}

func plainly(l net.Listener) net.Listener { return l }

// encrypting has a listener speak TLS.
func encrypting(t *testing.T) func(net.Listener) net.Listener {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close() // only its certificate is wanted
	return func(l net.Listener) net.Listener { return tls.NewListener(l, server.TLS) }
}

// serverThatSays one thing, to whoever asks, and gives its address.
func serverThatSays(t *testing.T, text string, how func(net.Listener) net.Listener) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l = how(l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 8)) // the beginning of a question
			_, _ = c.Write([]byte(text))
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return address
}
