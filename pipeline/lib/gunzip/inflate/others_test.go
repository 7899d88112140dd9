package inflate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

var (
	amount = flag.Int64("inflate.bytes", 30e6, "bytes of text for TestAgainstOthers")
	seed   = flag.Uint64("inflate.seed", 1, "seed for the streams of TestAgainstOthers")
)

// TestAgainstOthers compares the Reader with the standard library, klauspost and zlib, on valid,
// mutated and truncated streams. `make fuzz-inflate` runs it for 10⁹ bytes.
func TestAgainstOthers(t *testing.T) {
	g := generator{Rand: rand.New(rand.NewPCG(*seed, 0))}
	zlib := startZlib(t)
	r := new(Reader)
	var total int64
	streams, valid := 0, 0
	for ; total < *amount; streams++ {
		packed := g.stream()
		if g.IntN(3) == 0 {
			packed = compress(t, g.text(), []int{-2, 1, 5, 9}[g.IntN(4)])
		}
		if g.IntN(3) == 0 {
			g.mutate(&packed)
		}
		text, ok := compare(t, r, packed)
		zlib.compare(packed, text, ok)
		total += int64(len(text))
		if ok {
			valid++
		}
	}
	t.Logf("%d bytes in %d streams, %d of them valid", total, streams, valid)
	require.Greater(t, valid, streams/3)
	require.Less(t, valid, streams*9/10)
}

// zlib is a process that decompresses streams with Python's zlib.
type zlib struct {
	t   testing.TB
	in  *bufio.Writer
	out *bufio.Reader
}

const zlibProgram = `
import struct, sys, zlib
inp, out = sys.stdin.buffer, sys.stdout.buffer
while True:
    head = inp.read(4)
    if len(head) < 4:
        break
    packed, z = inp.read(struct.unpack('<I', head)[0]), zlib.decompressobj(-15)
    try:
        text = z.decompress(packed)
        ok = z.eof
    except zlib.error:
        text, ok = b'', False
    out.write(struct.pack('<?III', ok, len(text), zlib.crc32(text), len(z.unused_data)))
    out.flush()
`

func startZlib(t *testing.T) *zlib {
	t.Helper()
	p := exec.CommandContext(t.Context(), needs.Program(t, "python3"), "-c", zlibProgram)
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.Wait()
	})
	return &zlib{t, bufio.NewWriter(in), bufio.NewReader(out)}
}

func (z *zlib) compare(packed, text []byte, valid bool) {
	z.t.Helper()
	_ = binary.Write(z.in, binary.LittleEndian, uint32(len(packed)))
	_, _ = z.in.Write(packed)
	require.NoError(z.t, z.in.Flush())
	var theirs struct {
		Valid             bool
		Length, Sum, Rest uint32
	}
	require.NoError(z.t, binary.Read(z.out, binary.LittleEndian, &theirs))
	require.Equal(z.t, theirs.Valid, valid, "%x", packed)
	if valid {
		require.EqualValues(z.t, theirs.Length, len(text))
		require.Equal(z.t, theirs.Sum, crc32.ChecksumIEEE(text))
		_, rest, err := read(new(Reader), bytes.NewReader(packed))
		require.NoError(z.t, err)
		require.Len(z.t, rest, int(theirs.Rest))
	}
}

// generator generates streams that compressors do not produce.
type generator struct {
	*rand.Rand
	s      *stream
	length int // of the text
}

// stream returns a stream with up to five blocks, which is usually valid.
func (g *generator) stream() []byte {
	g.s, g.length = new(stream), 0
	for blocks := g.IntN(5); blocks >= 0; blocks-- {
		g.s.bits(uint(1-min(blocks, 1)), 1)
		switch g.IntN(8) {
		case 0:
			g.stored()
		case 1:
			g.s.bits(1, 2)
			var lengths []uint
			for _, l := range fixedLengths() {
				lengths = append(lengths, uint(l))
			}
			g.codes(lengths[:maxLitCodes], lengths[maxLitCodes:])
		default:
			g.s.bits(2, 2)
			literals := g.lengths(257+g.IntN(30), 257)
			if g.IntN(10) > 0 && literals[endOfBlock] == 0 {
				for i, l := range literals {
					if l > 0 {
						literals[endOfBlock], literals[i] = l, 0
						break
					}
				}
			}
			distances := g.lengths(1+g.IntN(30), 0)
			g.s.tables(literals, distances)
			g.codes(literals, distances)
		}
	}
	return g.s.packed
}

func (g *generator) stored() {
	n := g.IntN(1 << g.IntN(17))
	g.s.bits(0, 2).bits(0, (8-g.s.n%8)%8).bits(uint(n), 16).bits(^uint(n)&0xffff, 16)
	for range n {
		g.s.packed = append(g.s.packed, byte(g.Uint32()))
	}
	g.s.n += 8 * uint(n)
	g.length += n
}

// lengths returns the code lengths of n symbols. Some of the symbols form a complete code; in rare
// cases the code is invalid.
func (g *generator) lengths(n, least int) []uint {
	leaves := []uint{1, 1}
	for want := min(n, 2+g.IntN(1<<g.IntN(9))); len(leaves) < want; {
		i := g.IntN(len(leaves))
		if g.IntN(4) > 0 { // unbalanced
			i = len(leaves) - 1
		}
		if leaves[i] == maxLength {
			i = 0
		}
		if leaves[i] == maxLength {
			break
		}
		leaves[i]++
		leaves = append(leaves, leaves[i])
	}
	list := make([]uint, n)
	if n < 2 || least == 0 && g.IntN(8) == 0 {
		list[g.IntN(n)] = uint(g.IntN(2)) // the single code, or none
		return list
	}
	for i, symbol := range g.Perm(n)[:len(leaves)] {
		list[symbol] = leaves[i]
	}
	if g.IntN(200) == 0 {
		list[g.IntN(n)] = uint(g.IntN(16))
	}
	return list
}

// codes appends literals and matches, and the end of the block.
func (g *generator) codes(literals, distances []uint) {
	literalCodes, distanceCodes := canonical(literals), canonical(distances)
	var used, usedDistances []int
	for i, l := range literals {
		if l > 0 && i != endOfBlock && i < 286 {
			used = append(used, i)
		}
	}
	for i, l := range distances {
		if l > 0 && i < 30 {
			usedDistances = append(usedDistances, i)
		}
	}
	for range g.IntN(1 << g.IntN(15)) {
		if len(used) == 0 {
			break
		}
		symbol := used[g.IntN(len(used))]
		if symbol < endOfBlock {
			g.s.code(literalCodes[symbol], literals[symbol])
			g.length++
			continue
		}
		if len(usedDistances) == 0 {
			continue
		}
		i := usedDistances[g.IntN(len(usedDistances))]
		extra := uint(distSymbols[i] & 63)
		more := uint(g.IntN(1 << extra))
		if int(distSymbols[i]>>16)+int(more) > g.length && g.IntN(100_000) > 0 {
			continue
		}
		g.s.code(literalCodes[symbol], literals[symbol])
		extraLength := uint(litSymbols[symbol] & 63)
		moreLength := uint(g.IntN(1 << extraLength))
		g.s.bits(moreLength, extraLength).code(distanceCodes[i], distances[i]).bits(more, extra)
		g.length += int(litSymbols[symbol]>>16) + int(moreLength)
	}
	g.s.code(literalCodes[endOfBlock], literals[endOfBlock])
}

// canonical returns the canonical codes with the given lengths (RFC 1951, 3.2.2).
func canonical(lengths []uint) []uint {
	var count, next [maxLength + 2]uint
	for _, l := range lengths {
		if l > 0 {
			count[l]++
		}
	}
	for l := 1; l <= maxLength; l++ {
		next[l+1] = (next[l] + count[l]) << 1
	}
	codes := make([]uint, len(lengths))
	for i, l := range lengths {
		if l > 0 {
			codes[i] = next[l]
			next[l]++
		}
	}
	return codes
}

// text returns compressible text.
func (g *generator) text() []byte {
	var text []byte
	for want := g.IntN(1 << g.IntN(19)); len(text) < want; {
		if len(text) == 0 || g.IntN(3) == 0 {
			for range 1 + g.IntN(30) {
				text = append(text, byte(g.ExpFloat64()*20))
			}
			continue
		}
		from := max(0, len(text)-1-g.IntN(40_000))
		text = append(text, text[from:min(len(text), from+3+g.IntN(500))]...)
	}
	return text
}

// mutate changes bits, removes or inserts bytes, or truncates the stream.
func (g *generator) mutate(packed *[]byte) {
	p := *packed
	for range 1 + g.IntN(3) {
		if len(p) == 0 {
			return
		}
		switch at := g.IntN(len(p)); g.IntN(5) {
		case 0:
			p = p[:at]
		case 1:
			p = append(p[:at:at], p[at+1:]...)
		case 2:
			p = append(append(p[:at:at], byte(g.Uint32())), p[at:]...)
		default:
			p[min(at, g.IntN(200))%len(p)] ^= 1 << g.IntN(8)
		}
	}
	*packed = p
}
