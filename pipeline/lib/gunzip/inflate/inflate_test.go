package inflate

import (
	"bufio"
	"bytes"
	stdlib "compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/flate"
	"github.com/stretchr/testify/require"
)

// read decompresses a stream with a random keep for each call, and checks the text that is kept.
// rest is the input after the stream.
func read(r *Reader, from io.Reader) (text, rest []byte, err error) {
	in := bufio.NewReaderSize(from, 64+rand.IntN(1000))
	r.Reset(in)
	r.Begin()
	for err == nil {
		keep := rand.IntN(min(len(text), MaxKeep) + 1)
		var next []byte
		next, err = r.Next(keep)
		if !bytes.Equal(text[len(text)-keep:], next[:keep]) {
			return nil, nil, fmt.Errorf("got different text than in the previous result in the first %d bytes", keep)
		}
		if cap(next)-len(next) < Slack {
			return nil, nil, fmt.Errorf("got %d bytes of slack, want at least %d", cap(next)-len(next), Slack)
		}
		text = append(text, next[keep:]...)
	}
	if err != io.EOF {
		return text, nil, err
	}
	rest, err = io.ReadAll(in)
	return text, rest, err
}

func compress(t testing.TB, text []byte, level int) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, level)
	require.NoError(t, err)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.Bytes()
}

// texts returns contents of different kinds, the last of which is empty.
func texts() [][]byte {
	random := make([]byte, 300_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	var words strings.Builder
	for words.Len() < 400_000 {
		for range 1 + rand.IntN(12) {
			words.WriteByte('a' + byte(rand.ExpFloat64()*5)%26)
		}
		words.WriteByte(' ')
	}
	return [][]byte{
		[]byte(words.String()), random, make([]byte, 1_000_000), []byte("abc"), []byte(strings.Repeat("abcdefg", 20_000)),
		bytes.Repeat(random[:20_000], 5),
		{},
	}
}

// TestStreams reads streams compressed at several levels and followed by other bytes, at once and
// byte by byte.
func TestStreams(t *testing.T) {
	var r Reader
	for _, want := range texts() {
		for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 6, 9} {
			packed := append(compress(t, want, level), "rest"...)
			for _, in := range []io.Reader{bytes.NewReader(packed), iotest.OneByteReader(bytes.NewReader(packed)), iotest.DataErrReader(bytes.NewReader(packed))} {
				got, rest, err := read(&r, in)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
				require.Equal(t, "rest", string(rest))
			}
		}
	}
}

// TestTruncated checks that a stream that ends too early returns an error, after all text except
// for the last few codes.
func TestTruncated(t *testing.T) {
	var r Reader
	want := texts()[0][:20_000]
	for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 9} {
		packed := compress(t, want, level)
		for n := 0; n < len(packed); n += 1 + n/200 {
			for _, broken := range []error{io.EOF, errors.New("connection reset")} {
				expected := broken
				if broken == io.EOF {
					expected = io.ErrUnexpectedEOF
				}
				got, _, err := read(&r, io.MultiReader(bytes.NewReader(packed[:n]), iotest.ErrReader(broken)))
				require.Equal(t, expected, err, n)
				require.True(t, bytes.HasPrefix(want, got))
				all, _ := io.ReadAll(stdlib.NewReader(bytes.NewReader(packed[:n])))
				require.GreaterOrEqual(t, len(got)+maxMatch+6, len(all))
			}
		}
	}
}

// stream is a DEFLATE stream that is written bit by bit.
type stream struct {
	packed []byte
	n      uint // number of bits
}

// bits appends the low bits of v, the lowest first.
func (s *stream) bits(v, n uint) *stream {
	for i := range n {
		if s.n%8 == 0 {
			s.packed = append(s.packed, 0)
		}
		s.packed[s.n/8] |= byte(v>>i&1) << (s.n % 8)
		s.n++
	}
	return s
}

// code appends a Huffman code, the highest bit first.
func (s *stream) code(v, n uint) *stream {
	for n > 0 {
		n--
		s.bits(v>>n&1, 1)
	}
	return s
}

// dynamic appends the header of a last block with codes of the given lengths.
func (s *stream) dynamic(literals, distances []uint) *stream {
	return s.bits(1, 1).bits(2, 2).tables(literals, distances)
}

// tables appends the lengths of codes. In the precode, each symbol from 0 to 15 has the four-bit
// code with the same value.
func (s *stream) tables(literals, distances []uint) *stream {
	s.bits(uint(len(literals)-257), 5).bits(uint(len(distances)-1), 5).bits(19-4, 4)
	for _, symbol := range order {
		if symbol < 16 {
			s.bits(4, 3)
		} else {
			s.bits(0, 3)
		}
	}
	for _, l := range append(literals, distances...) {
		s.code(l, 4)
	}
	return s
}

// lengths returns n code lengths, which are 0 except for those in set.
func lengths(n int, set map[int]uint) []uint {
	list := make([]uint, n)
	for i, l := range set {
		list[i] = l
	}
	return list
}

func TestInvalid(t *testing.T) {
	f := func(want error, text string, s *stream) {
		t.Helper()
		got, _, err := read(new(Reader), bytes.NewReader(append(s.packed, make([]byte, 100)...)))
		require.Equal(t, want, err)
		require.Equal(t, text, string(got))
		_, err = io.ReadAll(stdlib.NewReader(bytes.NewReader(s.packed)))
		require.Equal(t, want == nil, err == nil, err)
	}
	block := func(kind uint) *stream { return new(stream).bits(1, 1).bits(kind, 2) }
	f(ErrBlock, "", block(3))
	f(ErrStored, "", block(0).bits(0, 5).bits(1, 16).bits(1, 16))
	f(nil, "a", block(0).bits(0, 5).bits(1, 16).bits(0xfffe, 16).bits('a', 8))

	// Fixed codes: a literal, lengths and distances that do not exist, and a match that begins too
	// early.
	a := func() *stream { return block(1).code(0x30+'a', 8) }
	f(nil, "a", a().code(0, 7))
	f(nil, "aaaa", a().code(1, 7).code(0, 5).code(0, 7))
	f(ErrCode, "a", a().code(0xc6, 8))
	f(ErrCode, "a", a().code(0xc7, 8))
	f(ErrCode, "a", a().code(1, 7).code(30, 5))
	f(ErrCode, "a", a().code(1, 7).code(31, 5))
	f(ErrDistance, "a", a().code(1, 7).code(1, 5))

	// Dynamic codes.
	two := map[int]uint{'a': 1, endOfBlock: 1}
	f(nil, "a", new(stream).dynamic(lengths(257, two), lengths(1, nil)).code(0, 1).code(1, 1))
	f(nil, "", new(stream).dynamic(lengths(257, map[int]uint{endOfBlock: 1}), lengths(1, nil)).code(0, 1))
	f(ErrCode, "", new(stream).dynamic(lengths(257, map[int]uint{endOfBlock: 1}), lengths(1, nil)).code(1, 1))
	f(ErrCode, "", new(stream).dynamic(lengths(257, map[int]uint{'a': 1}), lengths(1, nil)))                          // no end of block
	f(ErrCode, "", new(stream).dynamic(lengths(257, map[int]uint{'a': 1, 'b': 1, endOfBlock: 1}), lengths(1, nil)))   // too many
	f(ErrCode, "", new(stream).dynamic(lengths(257, map[int]uint{'a': 2, endOfBlock: 1}), lengths(1, nil)))           // too few
	f(ErrCode, "", new(stream).dynamic(lengths(257, map[int]uint{'a': 15, 'b': 14, endOfBlock: 1}), lengths(1, nil))) // too few
	f(ErrCode, "", new(stream).dynamic(lengths(257, two), lengths(3, map[int]uint{0: 1, 1: 1, 2: 1})).code(1, 1))     // too many distances
	f(ErrCode, "", new(stream).dynamic(lengths(287, two), lengths(1, nil)))                                           // symbol 286 is not allowed
	f(ErrCode, "", new(stream).dynamic(lengths(257, two), lengths(31, nil)))                                          // symbol 30 is not allowed
	match := map[int]uint{'a': 2, endOfBlock: 2, 257: 1}
	f(nil, "aaaa", new(stream).dynamic(lengths(258, match), lengths(1, map[int]uint{0: 1})).code(2, 2).code(0, 1).code(0, 1).code(3, 2))
	f(ErrCode, "a", new(stream).dynamic(lengths(258, match), lengths(1, map[int]uint{0: 1})).code(2, 2).code(0, 1).code(1, 1))
	f(ErrCode, "a", new(stream).dynamic(lengths(258, match), lengths(1, nil)).code(2, 2).code(0, 1).code(0, 1))

	// Code lengths: a repetition with nothing to repeat, a repetition past the end, and invalid
	// precodes.
	precode := func(lengths ...uint) *stream {
		s := new(stream).bits(1, 1).bits(2, 2).bits(0, 10).bits(15, 4)
		for _, symbol := range order {
			s.bits(lengths[symbol], 3)
		}
		return s
	}
	f(ErrCode, "", precode(append(make([]uint, 16), 1, 1, 0)...).code(0, 1).bits(0, 2))
	f(ErrCode, "", precode(append(make([]uint, 16), 0, 1, 1)...).code(1, 1).bits(127, 7).code(1, 1).bits(127, 7))
	f(ErrCode, "", precode(append(make([]uint, 16), 1, 1, 1)...))
	f(ErrCode, "", precode(append(make([]uint, 16), 0, 2, 1)...))
}

// TestHostileBlocks checks that blocks without text that build the largest tables from the fewest
// bytes cost at most ten times as much per byte of input as a typical stream. The cost is the
// number of bytes of text plus the number of table entries.
func TestHostileBlocks(t *testing.T) {
	cost := func(packed []byte) float64 {
		r := new(Reader)
		text, _, err := read(r, bytes.NewReader(packed))
		require.NoError(t, err)
		written := len(text)
		for _, e := range slices.Concat(r.literals[:], r.distances[:]) {
			if e != 0 {
				written++
			}
		}
		return float64(written) / float64(len(packed))
	}
	var items strings.Builder
	for range 2000 {
		fmt.Fprintf(&items, `{"detectorCode":"D-%05d","timestampFrom":"2026-01-20T10:00:00Z","value":%.2f},`, rand.IntN(1e5), 100*rand.Float64())
	}
	typical := cost(compress(t, []byte(items.String()), 6))

	// The literals have codes of 1, 2, … bits, with two codes of the longest length, the last of
	// which is the end of the block. The same applies to distances. In the precode, the symbol 18 for
	// the zeros before them has one bit, and the lengths have five.
	hostile := 0.0
	for longest := uint(litRoot); longest <= maxLength; longest++ {
		s := new(stream).bits(1, 1).bits(2, 2).bits(0, 5).bits(longest, 5).bits(19-4, 4)
		precode := make([]uint, 19)
		precode[18] = 1
		for l := range longest + 1 {
			precode[l] = 5
		}
		for l := longest + 1; l < 16; l++ { // completes the code
			precode[l] = 5
		}
		codes := canonical(precode)
		for _, symbol := range order {
			s.bits(precode[symbol], 3)
		}
		zeros := 257 - int(longest) - 1
		for _, n := range []int{138, zeros - 138} {
			s.code(codes[18], 1).bits(uint(n-11), 7)
		}
		for range 2 {
			for l := uint(1); l <= longest; l++ {
				s.code(codes[l], 5)
			}
			s.code(codes[longest], 5)
		}
		s.code(1<<longest-1, longest) // the end of the block
		hostile = max(hostile, cost(s.packed))
	}
	t.Logf("cost per byte of input: %.0f, of a typical stream: %.0f", hostile, typical)
	require.Less(t, hostile, 10*typical)
}

// FuzzReader compares the Reader with the standard library and klauspost.
func FuzzReader(f *testing.F) {
	for _, text := range texts() {
		f.Add(compress(f, text[:min(len(text), 2000)], 6))
	}
	f.Fuzz(func(t *testing.T, packed []byte) { compare(t, new(Reader), packed) })
}

// compare fails the test if the Reader and the other packages disagree about the text, or about
// whether the stream is valid. klauspost accepts some invalid distances.
func compare(t testing.TB, r *Reader, packed []byte) (text []byte, valid bool) {
	t.Helper()
	text, rest, err := read(r, bytes.NewReader(packed))
	for i, open := range []func(io.Reader) io.ReadCloser{stdlib.NewReader, flate.NewReader} {
		in := bufio.NewReader(bytes.NewReader(packed))
		want, wantErr := io.ReadAll(open(in))
		if i == 1 && err != nil {
			break
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got error %v, want %v for %x", err, wantErr, packed)
		}
		if err != nil {
			require.True(t, bytes.HasPrefix(want, text) || bytes.HasPrefix(text, want))
			continue
		}
		require.True(t, bytes.Equal(want, text), "%x", packed)
		left, _ := io.ReadAll(in)
		require.Equal(t, left, rest)
	}
	return text, err == nil
}
