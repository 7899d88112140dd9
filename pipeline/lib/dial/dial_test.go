package dial

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"trafficd/cmd/dev/devstores/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValidateKafka(t *testing.T) {
	f := func(change func(*Kafka), want ...string) {
		t.Helper()
		k := DefaultKafka("measurements")
		require.NoError(t, k.Validate("kafka."))
		change(&k)
		for _, w := range want { // one error reports all
			require.ErrorContains(t, k.Validate("kafka."), "kafka."+w)
		}
	}
	f(func(k *Kafka) { k.Brokers = nil }, "brokers must name")
	for _, topic := range []string{"", "a/b", "..", "ä", strings.Repeat("x", 250)} {
		f(func(k *Kafka) { k.Topic = topic }, "topic must be")
	}
	f(func(k *Kafka) { k.RequestTimeout = time.Hour }, "request_timeout is 1h0m0s")
	f(func(k *Kafka) { k.TLS.Cert = "c.pem" }, "tls.cert and kafka.tls.key must be set together", "tls.enabled must be true")
	f(func(k *Kafka) { k.SASL.Password = "p" }, "sasl.mechanism must be set")
	f(func(k *Kafka) { k.SASL.Mechanism = "plain" }, "sasl.username and kafka.sasl.password must be set for plain")
	f(func(k *Kafka) { k.SASL.Mechanism = "gssapi" }, `sasl.mechanism is "gssapi", must be plain, scram-sha-256 or scram-sha-512`)
}

func TestValidateClickHouse(t *testing.T) {
	f := func(q ClickHouseQuery, want ...string) {
		t.Helper()
		err := q.Validate("feed.")
		for _, w := range want {
			require.ErrorContains(t, err, "feed."+w)
		}
		require.Equal(t, len(want) == 0, err == nil)
	}
	f(ClickHouseQuery{
		Address: "[::1]:9000", Query: "SELECT 1", Interval: time.Second, Timeout: time.Second,
		ClickHouse: ClickHouse{TLS: TLS{Enabled: true, CA: "ca.pem"}},
	})
	f(ClickHouseQuery{Address: "here", ClickHouse: ClickHouse{TLS: TLS{Cert: "c.pem"}}},
		`address is "here"`, "query must be set", "tls.cert and feed.tls.key must be set together", "tls.enabled must be true",
		"interval is 0s", "timeout is 0s")
}

// TestFilesAreRead checks that Transport, not the first connection, reports errors in TLS files and
// credentials.
func TestFilesAreRead(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	require.NoError(t, os.WriteFile(junk, []byte("not a certificate"), 0o600))
	f := func(c TLS, want string) {
		t.Helper()
		_, err := Kafka{TLS: c}.Transport()
		require.ErrorContains(t, err, want)
	}
	f(TLS{Enabled: true, CA: junk + ".missing"}, "tls.ca: cannot read the CA certificates: open "+junk)
	f(TLS{Enabled: true, CA: junk}, "no CA certificate in "+junk)
	f(TLS{Enabled: true, Cert: junk, Key: junk}, "tls.cert and tls.key: cannot load the client certificate "+junk)
	_, err := Kafka{SASL: SASL{Mechanism: "scram-sha-256", Username: "u\x00", Password: "secret"}}.Transport()
	require.ErrorContains(t, err, "sasl.username and sasl.password: cannot use them with scram-sha-256")
	require.NotContains(t, err.Error(), "secret")

	c, err := TLS{Enabled: true, ServerName: "name", InsecureSkipVerify: true}.Config("tls.")
	require.NoError(t, err)
	require.True(t, c.InsecureSkipVerify)
	require.Equal(t, "name", c.ServerName)
	require.EqualValues(t, tls.VersionTLS12, c.MinVersion)
}

// TestClientCertificateExpiry checks that a metric has the time at which the client certificate now
// in the file expires, however often it is configured, and that a check reports it afterwards.
func TestClientCertificateExpiry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.pem")
	write := func(expiry time.Time) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: expiry}
		cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		require.NoError(t, err)
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), 0o600))
	}
	expiry := func() float64 {
		t.Helper()
		families, err := prometheus.DefaultGatherer.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == "trafficd_dial_client_certificate_expiry_timestamp_seconds" && m.Label[0].GetValue() == file {
					return m.GetGauge().GetValue()
				}
			}
		}
		t.Fatal("no metric")
		return 0
	}
	write(time.Unix(2_000_000_000, 0))
	for range 2 {
		_, err := TLS{Enabled: true, Cert: file, Key: file}.Config("tls.")
		require.NoError(t, err)
	}
	require.Equal(t, 2e9, expiry())
	write(time.Unix(2_100_000_000, 0))
	require.Equal(t, 2.1e9, expiry())

	config := TLS{Enabled: true, Cert: file, Key: file}
	check := func(want string) {
		t.Helper()
		_, err := Kafka{Topic: "measurements", TLS: config}.Check(t.Context(), "kafka.", false)
		query := ClickHouseQuery{ClickHouse: ClickHouse{TLS: config}}
		for _, err := range []error{err, query.Check(t.Context(), false)} {
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "tls.cert: the client certificate "+file+" "+want)
			}
		}
	}
	check("")
	write(time.Unix(1_000_000_000, 0))
	check("expired at 2001-09-09T01:46:40Z")
	require.NoError(t, os.Remove(file))
	require.True(t, math.IsNaN(expiry()))
}

func TestCheckClock(t *testing.T) {
	before := time.Now()
	after := before.Add(time.Minute) // a slow response does not count as a difference
	f := func(server time.Time, want string) {
		t.Helper()
		err := checkClock("address", "db:9000", server, before, after)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.EqualError(t, err, "address: the clock of db:9000 differs by "+want+" from this machine's: synchronise both with NTP")
	}
	f(before, "")
	f(after, "")
	f(after.Add(maxClockDifference), "")
	f(before.Add(-maxClockDifference), "")
	f(after.Add(time.Hour), "1h0m0s")
	f(before.Add(-time.Hour), "-1h0m0s")
}

// TestNotABroker feeds the first response of other servers to kafka-go, in chunks of every size.
func TestNotABroker(t *testing.T) {
	f := func(response, want string) {
		t.Helper()
		for size := 1; size <= max(1, len(response)); size++ {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					_, _ = io.ReadFull(c, make([]byte, 12)) // the start of a request
					for rest := response; rest != ""; rest = rest[min(size, len(rest)):] {
						_, _ = io.WriteString(c, rest[:min(size, len(rest))])
					}
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
			}()
			k := DefaultKafka("t")
			transport, err := k.Transport()
			require.NoError(t, err)
			client := &kafka.Client{Addr: kafka.TCP(l.Addr().String()), Timeout: time.Minute, Transport: transport}
			_, _, err = Partitions(t.Context(), client, k.Topic)
			require.ErrorContains(t, err, want)
			transport.CloseIdleConnections()
			require.NoError(t, l.Close())
			<-done
		}
	}
	f("HTTP/1.1 400 Bad Request\r\n", `is not a Kafka broker, or it requires TLS: its response begins with "HTTP`)
	f("\x15\x03\x03\x00\x02\x02\x46", "is not a Kafka broker, or it requires TLS") // a TLS alert
	f("SSH-2.0-OpenSSH_9.2\r\n", `begins with "SSH-`)
	f("", "EOF")
	f("HT", "EOF")
}

// TestBootstrap opens new connections to any of the brokers, of which some cannot be used. At most
// the first connection to each of these may fail. The network is in memory and the clock is fake,
// so that only the broker that never responds exceeds a time limit.
func TestBootstrap(t *testing.T) {
	for range 50 { // the brokers are tried in random order
		synctest.Test(t, testBootstrap)
	}
}

func testBootstrap(t *testing.T) {
	dialGood := stores.StartKfakeInMemory(t, kfake.SeedTopics(1, "t"))
	k := DefaultKafka("t")
	k.Brokers = []string{"hanging:9092", "closed:9092", "web:9092", "good:9092"}
	transport, err := k.Transport()
	require.NoError(t, err)
	transport.Dial = k.connect(func(ctx context.Context, network, address string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		switch address {
		case "closed:9092":
			return nil, syscall.ECONNREFUSED
		case "hanging:9092":
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
		case "web:9092":
			go func() {
				_, _ = theirs.Read(make([]byte, 1000))
				_, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\n\r\n")
				_ = theirs.Close()
			}()
		default:
			return dialGood(ctx, network, address)
		}
		return ours, nil
	})
	client := &kafka.Client{Addr: k.Addr(), Timeout: time.Minute, Transport: transport}
	dialer := k.Dialer(transport)
	failures := 0
	for range 20 {
		if _, _, err := Partitions(t.Context(), client, k.Topic); err != nil {
			require.ErrorContains(t, err, fmt.Sprint(k.Brokers))
			failures++
		}
		transport.CloseIdleConnections()
		conn, err := dialer.Dial("tcp", Bootstrap)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(k.DialTimeout))) // as consumer groups do
		if _, err = conn.ApiVersions(); err != nil {
			failures++
		}
		_ = conn.Close() // after an error, kafka-go has closed it
	}
	require.LessOrEqual(t, failures, 2)
}

// TestHangingAuthentication checks that a connection is closed if the broker does not respond to
// the authentication within dial_timeout.
func TestHangingAuthentication(t *testing.T) {
	broker := stores.StartKfake(t, kfake.EnableSASL()).ListenAddrs()[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() { // forwards only the first request of a connection, for the supported versions, and its response
		defer close(closed)
		for from, err := l.Accept(); err == nil; from, err = l.Accept() {
			if to, err := net.Dial("tcp", broker); err == nil {
				forwardMessage(to, from)
				forwardMessage(from, to)
				_ = to.Close()
			}
			_, _ = io.Copy(io.Discard, from)
			_ = from.Close()
		}
	}()
	k := DefaultKafka("t")
	k.Brokers, k.DialTimeout, k.MetadataMaxAge = []string{l.Addr().String()}, time.Second, time.Hour
	k.SASL = SASL{Mechanism: "plain", Username: "user", Password: "password"}
	transport, err := k.Transport()
	require.NoError(t, err)
	_, _, err = Partitions(t.Context(), &kafka.Client{Addr: k.Addr(), Timeout: time.Minute, Transport: transport}, k.Topic)
	require.Error(t, err)
	transport.CloseIdleConnections()
	_, err = k.Dialer(transport).Dial("tcp", Bootstrap)
	require.Error(t, err)
	require.NoError(t, l.Close())
	<-closed
}

// forwardMessage copies one message of the Kafka protocol.
func forwardMessage(to io.Writer, from io.Reader) {
	var size [4]byte
	_, _ = io.ReadFull(from, size[:])
	_, _ = to.Write(size[:])
	_, _ = io.CopyN(to, from, int64(binary.BigEndian.Uint32(size[:])))
}

// TestBootstrapWithoutTime checks that brokers for which no time is left are not tried last, nor is
// a broker if the caller gives up.
func TestBootstrapWithoutTime(t *testing.T) {
	b := newBootstrap([]string{"a", "b", "c"}, func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done() // the broker drops packets
		return nil, ctx.Err()
	})
	before := slices.Clone(b.brokers)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, b.brokers)

	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = b.dial(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, append(before[1:], before[0]), b.brokers)
}

// TestBatchesAreBounded checks that each codec decompresses at most the limit.
func TestBatchesAreBounded(t *testing.T) {
	boundCodecs()
	text := make([]byte, 10_000)
	for _, codec := range compress.Codecs[compress.None+1:] {
		var packed bytes.Buffer
		w := codec.NewWriter(&packed)
		_, err := w.Write(text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		f := func(limit int64, wantError string) {
			t.Helper()
			r := codec.NewReader(bytes.NewReader(packed.Bytes())).(*boundedReader)
			require.EqualValues(t, maxBatch, r.left, "the default limit")
			r.left = limit
			got, err := io.ReadAll(r)
			require.NoError(t, r.Close())
			require.LessOrEqual(t, int64(len(got)), limit)
			if wantError == "" {
				require.NoError(t, err)
				require.Equal(t, text, got)
				return
			}
			require.ErrorContains(t, err, wantError)
		}
		f(int64(len(text)), "")
		f(int64(len(text))-1, "record batch exceeds")
		f(0, "record batch exceeds")
	}
}
