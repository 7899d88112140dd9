package xmlstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// The bounds of a document. A feed of detectors is about 15 levels deep.
const (
	MaxToken      = 64 << 10 // bytes of a tag, a comment, or a text with its end tag
	MaxDepth      = 64
	MaxAttributes = 32
)

// Event is what Next has read.
type Event uint8

// The events. An empty element, <a/>, is a Start and an End.
const (
	Start Event = iota + 1
	End
)

// Reader reads one document. What its methods return is valid until the next call of Next.
type Reader struct {
	in   io.Reader
	err  error // returned by Next from now on
	read error // of in, usually io.EOF

	// The window holds the bytes from the current token on.
	window   []byte
	pos, end int   // the unread bytes are window[pos:end]
	base     int64 // offset of window[0] in the document

	names  []byte // names of the open elements, one after another
	opened [MaxDepth + 1]struct{ name, local int }
	depth  int
	name   []byte
	empty  bool // <a/> was read; its end is the next event
	rooted bool // the root element was read

	text       []byte
	joined     []byte // text that is not one piece of the window
	attributes [MaxAttributes]attribute
	count      int
	decoded    []byte // attribute values with character references
}

type attribute struct{ name, value []byte }

// NewReader returns a reader of the document in r.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: r, window: make([]byte, MaxToken)}
}

// Name returns the local name of the element that starts or ends.
func (r *Reader) Name() []byte { return r.name }

// Text returns, at an End, the text after the last tag, without white space around it.
func (r *Reader) Text() []byte { return r.text }

// Depth returns the number of open elements. At an End, the one that ends is no longer counted.
func (r *Reader) Depth() int { return r.depth }

// Offset returns the number of bytes before the next token, counted in UTF-8.
func (r *Reader) Offset() int64 { return r.base + int64(r.pos) }

// Attr returns the value of the attribute with the local name, at a Start. Declarations of
// namespaces are not attributes.
func (r *Reader) Attr(local string) ([]byte, bool) {
	for i := range r.attributes[:r.count] {
		if string(r.attributes[i].name) == local {
			return r.attributes[i].value, true
		}
	}
	return nil, false
}

// Attributes returns the local names and the values of all attributes, at a Start.
func (r *Reader) Attributes() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := range r.attributes[:r.count] {
			if !yield(r.attributes[i].name, r.attributes[i].value) {
				return
			}
		}
	}
}

// Next returns the next event. It returns io.EOF after the root element, and an error if the
// document is not well-formed, incomplete, or exceeds a bound.
func (r *Reader) Next() (Event, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.text, r.count = nil, 0
	if r.empty {
		r.empty = false
		return r.close(), nil
	}
	if r.base == 0 && r.end == 0 {
		if r.begin(); r.err != nil {
			return 0, r.err
		}
	}
	r.joined = r.joined[:0]
	n := 0 // length of the text before the next markup
	for r.err == nil {
		w := r.window[r.pos:r.end]
		i := bytes.IndexByte(w[n:], '<')
		if i < 0 {
			if n = len(w); r.read != nil && r.depth == 0 && r.rooted {
				return 0, r.finish(w)
			}
			r.more()
			continue
		}
		if n += i; n+1 == len(w) {
			r.more()
			continue
		}
		var size int // of the markup; 0 if the window ends within it
		event := Event(0)
		switch w[n+1] {
		case '/':
			size, event = r.endTag(w[n:]), End
		case '!', '?':
			size = r.other(w[n:], r.Offset()+int64(n))
		default:
			size, event = r.startTag(w[n:]), Start
		}
		if size == 0 {
			if r.err == nil {
				r.more()
			}
			continue
		}
		if !r.take(w[:n], w[n:n+size], event) {
			break
		}
		r.pos += n + size
		n = 0
		switch event {
		case Start:
			r.rooted = true
			return Start, nil
		case End:
			return r.close(), nil
		}
	}
	return 0, r.err
}

// take checks the text before a markup, and keeps it if it may be part of the text of an element.
// It reports whether the document may continue.
func (r *Reader) take(text, markup []byte, event Event) bool {
	flags := scan(text)
	cdata := bytes.HasPrefix(markup, openCDATA)
	if !blank(flags) || cdata {
		if r.depth == 0 || r.depth == 1 && event == Start && !r.rooted {
			return r.fail("text outside of the root element")
		}
		if !r.valid(text, flags) {
			return false
		}
	}
	if event == End && len(r.joined) == 0 && flags&(isReference|isReturn) == 0 {
		r.text = trim(text)
		return true
	}
	if !blank(flags) || len(r.joined) > 0 || cdata {
		r.joined = r.unescape(r.joined, text, flags)
	}
	if cdata {
		section := markup[len(openCDATA) : len(markup)-len(closeCDATA)]
		flags := scan(section)
		if !r.valid(section, flags&^isSpecial) {
			return false
		}
		r.joined = r.unescape(r.joined, section, flags&isReturn)
	}
	if len(r.joined) > MaxToken {
		return r.fail("a text is longer than %d bytes", MaxToken)
	}
	if event == End {
		r.text = trim(r.joined)
	}
	return r.err == nil
}

// endTag returns the size of the end tag at the beginning of w.
func (r *Reader) endTag(w []byte) int {
	if r.depth == 0 {
		r.fail("an end tag outside of the root element")
		return 0
	}
	name := r.names[r.opened[r.depth].name:]
	if size := len(name) + 3; len(w) >= size && w[size-1] == '>' && string(w[2:size-1]) == string(name) {
		return size
	}
	i := bytes.IndexByte(w, '>')
	if i < 0 {
		return 0
	}
	if got := bytes.TrimRight(w[2:i], " \t\r\n"); !bytes.Equal(got, name) {
		r.fail("element <%s> is closed by </%.64q>", name, got)
		return 0
	}
	return i + 1
}

// close ends the innermost element.
func (r *Reader) close() Event {
	o := r.opened[r.depth]
	r.name = r.names[o.local:]
	r.names = r.names[:o.name]
	r.depth--
	return End
}

// startTag reads the start tag at the beginning of w, and returns its size.
func (r *Reader) startTag(w []byte) int {
	local, i := r.readName(w, 1)
	if i == 0 {
		return 0
	}
	full := w[1:i]
	r.count, r.decoded = 0, r.decoded[:0]
	empty := false
	for {
		before := i
		if i = skipSpace(w, i); i+1 >= len(w) && (i == len(w) || w[i] != '>') {
			return 0
		}
		if w[i] == '/' && w[i+1] == '>' {
			empty = true
			i++
		}
		if w[i] == '>' {
			break
		}
		if i == before {
			r.fail("white space is missing in the tag <%.64s>", full)
			return 0
		}
		if i = r.readAttribute(w, i); i == 0 {
			return 0
		}
	}
	if r.depth == MaxDepth {
		r.fail("elements are nested more than %d deep", MaxDepth)
		return 0
	}
	if r.depth == 0 && r.rooted {
		r.fail("a second root element <%.64s>", full)
		return 0
	}
	r.depth++
	at := len(r.names)
	r.names = append(r.names, full...)
	r.opened[r.depth] = struct{ name, local int }{at, at + local - 1}
	r.name, r.empty = r.names[at+local-1:], empty
	return i + 1
}

// readAttribute reads the attribute at w[i], and returns the index after it, or 0 if the window
// ends within it.
func (r *Reader) readAttribute(w []byte, i int) int {
	begin := i
	local, i := r.readName(w, i)
	if i == 0 {
		return 0
	}
	name := w[local:i]
	declaration := string(w[begin:i]) == "xmlns" || bytes.HasPrefix(w[begin:i], []byte("xmlns:"))
	if i = skipSpace(w, i); i == len(w) {
		return 0
	}
	if w[i] != '=' {
		r.fail("attribute %.64s has no value", name)
		return 0
	}
	if i = skipSpace(w, i+1); i == len(w) {
		return 0
	}
	quote := w[i]
	if quote != '"' && quote != '\'' {
		r.fail("the value of attribute %.64s is not quoted", name)
		return 0
	}
	i++
	size := bytes.IndexByte(w[i:], quote)
	if size < 0 {
		return 0
	}
	value := w[i : i+size]
	flags := scan(value)
	if flags&isSpecial != 0 && bytes.IndexByte(value, '<') >= 0 {
		r.fail("< in the value of attribute %.64s", name)
		return 0
	}
	if !r.valid(value, flags&^isSpecial) {
		return 0
	}
	if flags&(isReference|isReturn) != 0 {
		at := len(r.decoded)
		r.decoded = r.unescape(r.decoded, value, flags)
		value = r.decoded[at:]
	}
	if !declaration {
		if r.count == MaxAttributes {
			r.fail("an element has more than %d attributes", MaxAttributes)
			return 0
		}
		r.attributes[r.count] = attribute{name, value}
		r.count++
	}
	return i + size + 1
}

// readName reads the name at w[i]. It returns the beginning of its local part and the index after
// it, or 0 if the window ends with it.
func (r *Reader) readName(w []byte, i int) (local, after int) {
	begin := i
	local = i
	high := uint8(0)
	for ; i < len(w) && class[w[i]]&isName != 0; i++ {
		high |= class[w[i]]
		if w[i] == ':' {
			if local != begin || i == begin {
				r.fail("the name %.64q has a misplaced colon", w[begin:i+1])
				return 0, 0
			}
			local = i + 1
		}
	}
	if i == len(w) {
		return 0, 0
	}
	if local == i || bytes.IndexByte([]byte("-.0123456789"), w[begin]) >= 0 || high&isHigh != 0 && !utf8.Valid(w[begin:i]) {
		r.fail("invalid name %.64q", w[begin:i])
		return 0, 0
	}
	return local, i
}

var (
	openComment = []byte("<!--")
	openCDATA   = []byte("<![CDATA[")
	closeCDATA  = []byte("]]>")
)

// other returns the size of the comment, CDATA section or processing instruction at the beginning
// of w, which is the byte at offset of the document.
func (r *Reader) other(w []byte, offset int64) int {
	from, mark := 2, []byte("?>")
	switch {
	case w[1] == '?':
		_, after := r.readName(w, 2)
		if after == 0 {
			return 0
		}
		if bytes.EqualFold(w[2:after], []byte("xml")) && offset > 0 {
			r.fail("an XML declaration after the beginning of the document")
			return 0
		}
	case bytes.HasPrefix(w, openComment):
		from, mark = len(openComment), []byte("--")
	case bytes.HasPrefix(w, openCDATA):
		from, mark = len(openCDATA), closeCDATA
	case len(w) < len(openCDATA):
		return 0
	case bytes.HasPrefix(w, []byte("<!DOCTYPE")):
		r.fail("a document type declaration is not allowed")
		return 0
	default:
		r.fail("invalid markup %.16q", w)
		return 0
	}
	i := bytes.Index(w[from:], mark)
	if i < 0 {
		return 0
	}
	size := from + i + len(mark)
	if from == len(openComment) {
		if size == len(w) {
			return 0
		}
		if w[size] != '>' {
			r.fail("-- within a comment")
			return 0
		}
		size++
	}
	return size
}

// more reads until the window is full. If nothing can be read, the document ends too early.
func (r *Reader) more() {
	r.end = copy(r.window, r.window[r.pos:r.end])
	r.base += int64(r.pos)
	r.pos = 0
	switch {
	case r.end == len(r.window):
		r.fail("a token is longer than %d bytes", MaxToken)
	case r.read != nil && !errors.Is(r.read, io.EOF):
		r.err = fmt.Errorf("cannot read the document: %w", r.read)
	case r.read != nil:
		r.fail("unexpected end of the document")
	}
	for r.end < len(r.window) && r.read == nil {
		var n int
		n, r.read = r.in.Read(r.window[r.end:])
		r.end += n
	}
}

// finish checks what follows the root element.
func (r *Reader) finish(rest []byte) error {
	switch {
	case !errors.Is(r.read, io.EOF):
		r.err = fmt.Errorf("cannot read the document: %w", r.read)
	case !blank(scan(rest)):
		r.fail("text outside of the root element")
	default:
		r.err = io.EOF
	}
	return r.err
}

// fail ends the document with an error.
func (r *Reader) fail(format string, args ...any) bool {
	if r.err == nil {
		r.err = fmt.Errorf("invalid XML at byte %d: "+format, append([]any{r.Offset()}, args...)...)
	}
	return false
}
