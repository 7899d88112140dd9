package gunzip

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// member returns a gzip member; change sets its header.
func member(t testing.TB, content string, change func(*gzip.Header)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if change != nil {
		change(&w.Header)
	}
	_, err := io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func read(in io.Reader) (string, error) {
	var z Reader
	z.Reset(in)
	out, err := io.ReadAll(&z)
	return string(out), err
}

var longFields = func(h *gzip.Header) {
	h.Name, h.Comment, h.Extra = strings.Repeat("n", 5000), strings.Repeat("c", 40_000), bytes.Repeat([]byte("x"), 60_000)
}

// TestMembers reads members with short and long header fields, at once and byte by byte.
func TestMembers(t *testing.T) {
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	f := func(want string, members ...[]byte) {
		t.Helper()
		packed := bytes.Join(members, nil)
		for _, in := range []io.Reader{bytes.NewReader(packed), iotest.OneByteReader(bytes.NewReader(packed)), iotest.DataErrReader(bytes.NewReader(packed))} {
			got, err := read(in)
			require.NoError(t, err)
			require.True(t, want == got)
		}
	}
	f("", member(t, "", nil))
	f("abc", member(t, "abc", nil))
	f("abcdef", member(t, "abc", nil), member(t, "", longFields), member(t, "def", longFields))
	f(string(random), member(t, string(random), longFields))
}

// TestTruncated truncates a stream with two members at each byte, except between the members.
func TestTruncated(t *testing.T) {
	first := member(t, "abc", nil)
	packed := append(first, member(t, "def", func(h *gzip.Header) { h.Name, h.Comment, h.Extra = "name", "comment", []byte("extra") })...)
	for n := range packed {
		if n == 0 || n == len(first) {
			continue
		}
		_, err := read(bytes.NewReader(packed[:n]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, n)
		require.ErrorContains(t, err, fmt.Sprintf("after %d bytes", n))
	}
}

func TestInvalid(t *testing.T) {
	f := func(want error, packed ...[]byte) {
		t.Helper()
		_, err := read(bytes.NewReader(bytes.Join(packed, nil)))
		require.ErrorIs(t, err, want)
	}
	abc := member(t, "abc", nil)
	f(ErrEmpty)
	f(ErrHeader, []byte("{}"))
	f(ErrHeader, []byte("{"))
	f(ErrTrailing, abc, []byte("x"))
	f(ErrTrailing, abc, []byte("\x1fx"))
	f(ErrTrailing, abc, make([]byte, 100))
	for i := 1; i <= 8; i++ {
		wrong := bytes.Clone(abc)
		wrong[len(wrong)-i]++
		f(ErrChecksum, wrong)
	}
	method := bytes.Clone(abc)
	method[2] = 7
	_, err := read(bytes.NewReader(method))
	require.ErrorContains(t, err, "unknown compression method 7")

	reserved := bytes.Clone(abc)
	reserved[3] = 1 << 5
	_, err = read(bytes.NewReader(reserved))
	require.ErrorContains(t, err, "reserved flags 0x20 are set")

	// The checksum of the header.
	sum := append([]byte{0x1f, 0x8b, 8, hasCRC, 0, 0, 0, 0, 0, 0xff}, 0, 0)
	f(ErrChecksum, sum, abc[headerSize:])
	var z Reader
	z.Reset(bytes.NewReader(sum))
	z.members = 0
	_, err = z.take(headerSize)
	require.NoError(t, err)
	sum[10], sum[11] = byte(z.crc), byte(z.crc>>8)
	got, err := read(bytes.NewReader(append(sum, abc[headerSize:]...)))
	require.NoError(t, err)
	require.Equal(t, "abc", got)

	broken := errors.New("connection reset")
	_, err = read(io.MultiReader(bytes.NewReader(abc[:12]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	_, err = read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

// TestForeignFormats checks that the error names the format of a body that is not gzip.
func TestForeignFormats(t *testing.T) {
	f := func(want, body string) {
		t.Helper()
		var z Reader
		z.Reset(strings.NewReader(body))
		_, err := z.Next(0)
		require.ErrorIs(t, err, ErrHeader)
		require.Equal(t, want, strings.TrimPrefix(err.Error(), ErrHeader.Error()))
	}
	var zlibBody bytes.Buffer
	w := zlib.NewWriter(&zlibBody)
	require.NoError(t, w.Close())
	f("; it looks like zlib, as in Content-Encoding: deflate", zlibBody.String())
	f("; it looks like zstd", "\x28\xb5\x2f\xfd\x04")
	f("; it looks like a ZIP archive", "PK\x03\x04\x14\x00\x00\x00\x08\x00\x00")
	f("; it looks like xz", "\xfd7zXZ\x00\x00")
	f("; it looks like bzip2", "BZh91AY&SY")
	f("; it looks like JSON that is not compressed", `{"measurements":[]}`)
	f("; it looks like JSON that is not compressed", "\xef\xbb\xbf\r\n [")
	f("; it looks like gzip in base64", "H4sIAAAAAAAA/w==")
	f("", "x\x78\x9c")
	f("", "\x78\x9e")
}

// TestReset checks that a Reader can be reused, even after an error, and allocates nothing.
func TestReset(t *testing.T) {
	packed, in, buffer := member(t, "abc", nil), bytes.NewReader(nil), make([]byte, 100)
	var z Reader
	once := func() {
		in.Reset(packed)
		z.Reset(in)
		for {
			if _, err := z.Read(buffer); err != nil {
				return
			}
		}
	}
	z.Reset(strings.NewReader("x"))
	_, err := z.Read(buffer)
	require.ErrorIs(t, err, ErrHeader)
	once()
	require.Zero(t, testing.AllocsPerRun(100, once))
}

func FuzzReader(f *testing.F) {
	f.Add(member(f, "abc", nil))
	f.Add(append(member(f, "abc", nil), member(f, "def", func(h *gzip.Header) { h.Name, h.Extra = "n", []byte("e") })...))
	f.Fuzz(func(t *testing.T, packed []byte) {
		theirs, err := gzip.NewReader(bytes.NewReader(packed))
		var want []byte
		if err == nil {
			want, err = io.ReadAll(theirs)
		}
		got, ownErr := read(bytes.NewReader(packed))
		if err == nil && ownErr == nil {
			require.Equal(t, string(want), got)
		}
		if ownErr == nil && err != nil && !errors.Is(err, gzip.ErrHeader) { // long header fields
			t.Fatalf("got no error, want %v as from the standard library", err)
		}
	})
}
