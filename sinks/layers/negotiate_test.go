package layers

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func requestWith(name string, values ...string) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	h.SetMethod("GET")
	for _, v := range values {
		h.Add(name, v)
	}
	return h
}

func TestChooseFormat(t *testing.T) {
	f := func(want format, accept ...string) {
		t.Helper()
		require.Equal(t, want, chooseFormat(requestWith("Accept", accept...)), "%q", accept)
	}
	f(protobuf)
	f(protobuf, "")
	f(protobuf, "*/*")
	f(protobuf, "application/x-protobuf")
	f(jsonText, "application/json")

	f(protobuf, "application/json, application/x-protobuf")
	f(protobuf, "application/json, text/plain, */*")
	f(jsonText, "application/json, */*;q=0.9")
	f(jsonText, "*/*;q=0.1", "application/json;q=0.2")
	f(protobuf, "application/json;q=0.2, application/*;q=0.3")
	f(jsonText, "application/x-protobuf;q=0, */*")
	f(protobuf, "application/json;q=0, text/html") // no 406, although neither is acceptable
	f(protobuf, "text/html")
}

func TestChooseEncoding(t *testing.T) {
	f := func(want encoding, accept ...string) {
		t.Helper()
		require.Equal(t, want, chooseEncoding(requestWith("Accept-Encoding", accept...)), "%q", accept)
	}
	f(identity)
	f(identity, "")
	f(gzipped, "gzip")
	f(gzipped, "x-gzip")
	f(gzipped, "gzip, deflate, br, zstd")
	f(gzipped, "gzip;q=1.0, zstd;q=0.9")
	f(zstandard, "gzip;q=0.9, zstd")
	f(zstandard, "zstd")
	f(zstandard, "*, gzip;q=0")
	f(gzipped, "*")
	f(gzipped, "*, zstd;q=0")
	f(identity, "*;q=0")
	f(identity, "identity;q=0") // no 406, although nothing is acceptable
	f(identity, "br")
	f(identity, "identity, gzip;q=0.5")
	f(gzipped, "identity;q=0.5, gzip;q=0.5")
	f(identity, "gzip;q=0")
}
