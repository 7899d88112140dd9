package ingest_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/pipeline/batch"
	"trafficd/sources/ingest"
)

// acceptAll is a Pipeline that reads each body to its end and accepts it.
type acceptAll struct{ stages }

func (*acceptAll) Submit(s *batch.Submission) error {
	if _, err := io.Copy(io.Discard, s.Body); err != nil {
		return err
	}
	s.Result.Items, s.Result.Accepted = 14_000, 14_000
	return nil
}

const bodySize = 150_000

// BenchmarkRequest measures the server's part of a request of 150 KB on a persistent loopback
// connection. The client is another process, so that neither its CPU time nor its allocations
// count. user-µs/op is the CPU time of this code; sys-µs/op is mostly the kernel copying data.
func BenchmarkRequest(b *testing.B) {
	addr := start(b, &acceptAll{}, nil)
	client(b, addr, 100) // fills the pools
	before, allocations := usage(b), mallocs()
	b.ResetTimer()
	client(b, addr, b.N)
	b.StopTimer()
	user, sys := usage(b).sub(before)
	b.SetBytes(bodySize)
	b.ReportMetric(user/float64(b.N), "user-µs/op")
	b.ReportMetric(sys/float64(b.N), "sys-µs/op")
	b.ReportMetric(float64(mallocs()-allocations)/float64(b.N), "mallocs/op")
}

// TestRequestAllocations checks that an accepted batch over HTTP needs few allocations.
func TestRequestAllocations(t *testing.T) {
	if ingest.RaceEnabled {
		t.Log("the number of allocations is not checked: under -race, sync.Pool drops random items")
	}
	addr := start(t, &acceptAll{}, nil)
	client(t, addr, 50)
	before := mallocs()
	client(t, addr, 400)
	perRequest := float64(mallocs()-before) / 400
	t.Logf("%.1f allocations per request", perRequest)
	if !ingest.RaceEnabled {
		require.LessOrEqual(t, perRequest, 30.0)
	}
}

// client starts another process that sends n requests over one connection.
func client(t testing.TB, addr string, n int) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), clientEnv+"="+addr, clientEnv+"_N="+strconv.Itoa(n))
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
}

const clientEnv = "INGEST_TEST_CLIENT"

// runClient is the main function of the client process.
func runClient(addr string) error {
	n, err := strconv.Atoi(os.Getenv(clientEnv + "_N"))
	if err != nil {
		return err
	}
	body := make([]byte, bodySize)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(body)
	copy(body, "\x1f\x8b")
	request := append([]byte("POST "+ingest.Path+" HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey key\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"+length(string(body))+"\r\n"), body...)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for range n {
		if _, err := c.Write(request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 207 {
			return fmt.Errorf("status %d, %v", resp.StatusCode, err)
		}
	}
	return nil
}

type cpu unix.Rusage

func usage(t testing.TB) (u cpu) {
	t.Helper()
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, (*unix.Rusage)(&u)))
	return u
}

// sub returns the difference in microseconds.
func (u cpu) sub(v cpu) (user, sys float64) {
	micro := func(a, b unix.Timeval) float64 { return float64(a.Sec-b.Sec)*1e6 + float64(a.Usec-b.Usec) }
	return micro(u.Utime, v.Utime), micro(u.Stime, v.Stime)
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
