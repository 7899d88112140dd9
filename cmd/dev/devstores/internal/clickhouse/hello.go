package clickhouse

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// hello is the first packet of a client of the native protocol.
type hello struct {
	raw                      []byte
	database, user, password string
}

var errNoHello = errors.New("the first packet is not a hello")

// maxHelloText is far more than any text in a hello has, except for tokens.
const maxHelloText = 16 << 10

// readHello reads a hello and not a byte more. An error means that there is none; raw then holds
// what was read.
func readHello(r io.Reader) (h hello, err error) {
	in := helloReader{from: r}
	if in.uvarint() != 0 && in.err == nil {
		in.err = errNoHello
	}
	if name := in.text(); name == "" && in.err == nil {
		in.err = errNoHello
	}
	for range 3 { // major, minor, revision
		in.uvarint()
	}
	h.database, h.user, h.password = in.text(), in.text(), in.text()
	h.raw = in.raw
	return h, in.err
}

// helloReader reads fields until an error, which it keeps.
type helloReader struct {
	from io.Reader
	raw  []byte
	err  error
}

// ReadByte implements io.ByteReader.
func (r *helloReader) ReadByte() (byte, error) {
	var b [1]byte
	if _, err := io.ReadFull(r.from, b[:]); err != nil {
		return 0, err
	}
	r.raw = append(r.raw, b[0])
	return b[0], nil
}

func (r *helloReader) uvarint() (n uint64) {
	if r.err == nil {
		n, r.err = binary.ReadUvarint(r)
	}
	return n
}

func (r *helloReader) text() string {
	n := r.uvarint()
	if r.err == nil && n > maxHelloText {
		r.err = errNoHello
	}
	if r.err != nil {
		return ""
	}
	text := make([]byte, n)
	got, err := io.ReadFull(r.from, text)
	r.raw, r.err = append(r.raw, text[:got]...), err
	return string(text)
}

// refuses returns the code and the text of the error with which the engine would reject the user or
// the database, or 0. It asks the HTTP interface, because an engine that runs as a library aborts
// after the error of a handshake.
func (r *relay) refuses(h hello) (code int, text string) {
	if r.http == "" {
		return 0, ""
	}
	u := url.URL{Scheme: "http", Host: r.http, Path: "/", RawQuery: url.Values{"query": {"SELECT 1"}, "database": {h.database}}.Encode()}
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, ""
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	request.Header.Set("X-ClickHouse-User", h.user)
	request.Header.Set("X-ClickHouse-Key", h.password)
	response, err := client.Do(request)
	if err != nil {
		return 0, "" // the connection to the engine shows why
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	code, _ = strconv.Atoi(response.Header.Get("X-ClickHouse-Exception-Code"))
	return code, strings.TrimSpace(string(body))
}

// exception returns the packet that reports an error to a client.
func exception(code int, text string) []byte {
	p := binary.LittleEndian.AppendUint32([]byte{2}, uint32(code))
	for _, s := range []string{"DB::Exception", text, ""} { // name, message, stack trace
		p = append(binary.AppendUvarint(p, uint64(len(s))), s...)
	}
	return append(p, 0) // no nested exception
}
