package forecasts

import (
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
		feed, _ := run(t, topicConfig("f", serverThatSays(t, says)))
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
	https := httptest.NewTLSServer(http.NotFoundHandler())
	defer https.Close()
	cfg := topicConfig("f", https.Listener.Addr().String())
	cfg.Kafka.TLS = TLS{Enabled: true, InsecureSkipVerify: true}
	feed, _ := run(t, cfg)
	waitForError(t, feed, `begins with "HTTP"`)
	feed.Close()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}

// serverThatSays one thing, to whoever asks, and gives its address.
func serverThatSays(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}
