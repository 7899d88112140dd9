package xmlstream

import (
	"bytes"
	"io"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// charsets lists the encodings besides UTF-8, by the lower-case names that documents declare.
var charsets = map[string]*charmap.Charmap{
	"iso-8859-1":   charmap.ISO8859_1,
	"latin1":       charmap.ISO8859_1,
	"iso-8859-15":  charmap.ISO8859_15,
	"windows-1252": charmap.Windows1252,
}

// begin reads the first window, and the XML declaration in it.
func (r *Reader) begin() {
	r.more()
	w := r.window[:r.end]
	switch {
	case bytes.HasPrefix(w, []byte("\xEF\xBB\xBF")):
		r.end = copy(r.window, w[3:])
		w = r.window[:r.end]
	case bytes.HasPrefix(w, []byte("\xFE\xFF")), bytes.HasPrefix(w, []byte("\xFF\xFE")):
		r.fail("UTF-16 is not supported")
		return
	}
	head, _, ok := bytes.Cut(w, []byte("?>"))
	if !ok || !bytes.HasPrefix(head, []byte("<?xml")) || class[head[min(5, len(head)-1)]]&isSpace == 0 {
		return
	}
	if version := declared(head, "version"); version != "" && version != "1.0" {
		r.fail("XML version %.16q is not supported", version)
	}
	name := strings.ToLower(declared(head, "encoding"))
	if name == "" || name == "utf-8" || name == "us-ascii" {
		return
	}
	charset, ok := charsets[name]
	if !ok {
		r.fail("encoding %.32q is not supported; UTF-8, ISO-8859-1, ISO-8859-15 and windows-1252 are", name)
		return
	}
	in := r.in
	if r.read != nil { // the error comes after the bytes that were read
		in = &failing{r.read}
	}
	r.in, r.read, r.end = charset.NewDecoder().Reader(io.MultiReader(bytes.NewReader(bytes.Clone(w)), in)), nil, 0
	r.more()
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// declared returns the value of a pseudo-attribute of the XML declaration, or "".
func declared(head []byte, name string) string {
	_, rest, _ := bytes.Cut(head, []byte(name))
	rest = bytes.TrimLeft(rest, " \t\r\n")
	rest, ok := bytes.CutPrefix(rest, []byte("="))
	rest = bytes.TrimLeft(rest, " \t\r\n")
	if !ok || len(rest) == 0 || rest[0] != '"' && rest[0] != '\'' {
		return ""
	}
	value, _, ok := bytes.Cut(rest[1:], rest[:1])
	if !ok {
		return ""
	}
	return string(value)
}
