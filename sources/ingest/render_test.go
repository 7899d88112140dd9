package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/admission"
	"trafficd/schemas/contract"
)

// FuzzEcho checks that echoed bytes become valid JSON and valid UTF-8, truncated between
// characters.
func FuzzEcho(f *testing.F) {
	for _, s := range []string{"plain", "\xff\x00\"\\\n\x7f\u2028", strings.Repeat("é", 40), strings.Repeat("x", 63) + "é", strings.Repeat("x", 61) + "\xf0\x9f\x98\x80", strings.Repeat("\xed\xa0\x80", 22), strings.Repeat("\xa0", 70)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r := batch.Result{Allowed: contract.Allowed{ProductInstance: "demo"}}
		input = bytes.ReplaceAll(input, []byte{0xff}, []byte{0xfe}) // no part of a body, see contract.AppendDetail
		r.Add(7, contract.UnknownDetector, contract.FieldDetectorCode, input)
		raw := appendRejection(nil, &r, r.List[0])
		var got struct {
			Index int
			Error struct{ Description, ErrorCode, Parameter string }
		}
		if !utf8.Valid(raw) || json.Unmarshal(raw, &got) != nil {
			t.Fatalf("got %q, want valid UTF-8 and JSON", raw)
		}
		if len(input) == 0 {
			return
		}
		echoed := input
		if len(echoed) > contract.EchoLimit {
			echoed = echoed[:contract.EchoLimit]
		}
		text := strings.TrimSuffix(strings.TrimPrefix(got.Error.Description, `detectorCode "`), `" does not exist in product instance demo`)
		if len(echoed) == contract.EchoLimit && !utf8.Valid(echoed) {
			return // the result for invalid UTF-8 at the limit is unspecified
		}
		want := string([]rune(string(echoed))) // each invalid byte becomes one U+FFFD
		if text != want || got.Error.Parameter != "measurements[7].detectorCode" || got.Index != 7 {
			t.Fatalf("input %q: got %q, want a description that quotes %q", input, raw, want)
		}
	})
}

func TestRenderDoesNotAllocatePerRejection(t *testing.T) {
	result := func(n int) *batch.Result {
		r := &batch.Result{Items: n, Allowed: contract.Allowed{ProductInstance: strings.Repeat("city", 20)}}
		for i := range n {
			r.Add(i, contract.UnknownDetector, contract.FieldDetectorCode, []byte("some detector \x01 é"))
		}
		return r
	}
	a := admission.New(DefaultConfig().AdmissionBytes, memory)
	allocs := func(r *batch.Result) float64 {
		return testing.AllocsPerRun(20, func() {
			out := newRendering(r, a, "client")
			_ = out.size()
			_, _ = out.WriteTo(io.Discard)
			*r, out.result = out.result, *r
			_ = out.Close()
		})
	}
	few, many := result(1), result(10_000)
	if got := allocs(few); got > 1 && !raceEnabled {
		t.Errorf("got %v allocations for one rejection, want at most 1", got)
	}
	if got := allocs(many); got > 1 && !raceEnabled {
		t.Errorf("got %v allocations for 10,000 rejections, want at most 1", got)
	}
	require.Zero(t, a.Total())
}

// TestRenderingHoldsTheListOnly checks that a client that does not read its response is charged
// for the list of rejections, not for the text.
func TestRenderingHoldsTheListOnly(t *testing.T) {
	const items = 140_000
	r := &batch.Result{Items: items}
	for i := range items {
		r.Add(i, contract.BatchLimitExceeded, contract.FieldItem, nil)
	}
	a := admission.New(DefaultConfig().AdmissionBytes, memory)
	out := newRendering(r, a, "client")
	size := out.size()
	require.Zero(t, r.Len())
	require.Greater(t, size, 20<<20)
	require.Less(t, a.Total(), int64(3<<20))
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Len(t, text, size)
	require.True(t, json.Valid(text))
	require.NoError(t, out.Close())
	require.Zero(t, a.Total())

	_, err = newRendering(r, a, "client").WriteTo(brokenPipe{})
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestAcceptEncoding(t *testing.T) {
	f := func(want bool, lines ...string) {
		t.Helper()
		var h fasthttp.RequestHeader
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		require.Equal(t, want, wantsGzip(&h), lines)
	}
	f(false)
	f(true, "Accept-Encoding: gzip")
	f(true, "Accept-Encoding: GZip")
	f(true, "Accept-Encoding: x-gzip")
	f(true, "Accept-Encoding: deflate, gzip;q=0.5, br")
	f(true, "Accept-Encoding: gzip ; Q=0.001")
	f(true, "Accept-Encoding: *")
	f(true, "Accept-Encoding: br", "Accept-Encoding: gzip")
	f(false, "Accept-Encoding: *;q=0")
	f(false, "Accept-Encoding: gzip;q=0, *")
	f(false, "Accept-Encoding: gzip;q=0.000")
	f(false, "Accept-Encoding: gzip;q=x")
	f(false, "Accept-Encoding: identity")
	f(false, "Accept-Encoding: gzipped, agzip")
	f(false, "Accept-Encoding: ")
	f(false, "Accept: application/json")
	f(false, "Accept: */*")
	f(true, "Accept: gzip")
	f(true, "Accept: application/gzip")
	f(true, "Accept: application/json+gzip")
	f(true, "Accept: application/json;q=0.5, application/x-gzip")
	f(true, "Accept: application/json; encoding=GZIP")
	f(false, "Accept: application/gzip;q=0")
	f(false, "Accept: application/gzipped")
}

// TestBlocks checks that bytes written in pieces of any size are read back unchanged, and that
// every block is charged to the client.
func TestBlocks(t *testing.T) {
	a := admission.New(DefaultConfig().AdmissionBytes, memory)
	f := func(size, piece int) {
		t.Helper()
		want := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		in, out := newBlocks(a, "client"), newBlocks(a, "client")
		for rest := want; len(rest) > 0; {
			space, err := in.Space()
			require.NoError(t, err)
			n := copy(space, rest[:min(piece, len(rest))])
			require.NoError(t, in.Wrote(n))
			rest = rest[n:]
		}
		for rest := want; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			_, _ = out.Write(rest[:min(piece, len(rest))])
		}
		require.EqualValues(t, 2*((size+blockSize-1)/blockSize*blockSize), a.Total())
		got, err := io.ReadAll(in)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		var b bytes.Buffer
		n, err := out.WriteTo(&b)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		require.True(t, bytes.Equal(want, b.Bytes()))
		require.NoError(t, in.Close())
		require.NoError(t, out.Close())
		require.Zero(t, a.Total())
	}
	for _, size := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 7} {
		for _, piece := range []int{1000, blockSize, blockSize + 1} {
			f(size, piece)
		}
	}
	rejected := newBlocks(a, "client")
	rejected.end = contract.NewError(contract.BodyTooLarge, "")
	_, err := io.ReadAll(rejected)
	require.ErrorIs(t, err, rejected.end)
	require.NoError(t, rejected.Close())
	_, err = io.Copy(brokenPipe{}, func() io.Reader { b := newBlocks(a, "client"); fmt.Fprint(b, "x"); return b }())
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestUnreadResponsesBlockBodies checks that no body is read while unread responses exceed the
// limit.
func TestUnreadResponsesBlockBodies(t *testing.T) {
	a := admission.New(DefaultConfig().AdmissionBytes, memory)
	body := newBlocks(a, "client")
	fmt.Fprint(body, "body")
	a.Charge("client", DefaultConfig().AdmissionBytes)
	_, err := io.ReadAll(body)
	var apiErr *contract.APIError
	require.ErrorAs(t, err, &apiErr)
	require.Equal(t, contract.ServiceUnavailable, apiErr.Code)
	a.Discharge("client", DefaultConfig().AdmissionBytes)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "body", string(text))
	require.NoError(t, body.Close())
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
