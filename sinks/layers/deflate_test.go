package layers

import (
	"bytes"
	"compress/flate"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeflate compresses texts that need every length and distance, and longer codes than deflate
// allows, and decompresses them with the standard library.
func TestDeflate(t *testing.T) {
	d := new(deflater)
	f := func(text []byte, values []value) {
		t.Helper()
		blocks := bytes.Clone(d.deflate(text, values))
		require.True(t, string(text) == inflate(t, blocks), "deflate")
		require.Equal(t, blocks, d.deflate(text, values), "the blocks must depend only on the text")
	}
	f(nil, nil)
	f([]byte("a"), []value{{0, 1}})
	random := rand.New(rand.NewPCG(7, 8))
	noise := make([]byte, maxDistance+10)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	f(noise, valuesOf(noise))
	for n := range 2*maxMatch + 5 { // matches of n bytes
		text := bytes.Join([][]byte{noise[:n], noise[:n], {0}}, []byte("-"))
		f(text, []value{{n, n + 1}, {2*n + 1, 2*n + 2}})
	}
	for distance := 10; distance < len(noise); distance += 1 + distance/9 {
		f(append(bytes.Clone(noise[:distance]), noise[:10]...), []value{{0, 10}, {distance, distance + 10}})
	}
	for distance := maxDistance - 2; distance < maxDistance+3; distance++ {
		f(append(bytes.Clone(noise[:distance]), noise[:10]...), []value{{0, 10}, {distance, distance + 10}})
	}
	var skewed []byte // with Fibonacci numbers as frequencies the longest Huffman code has almost as many bits as there are symbols
	for a, b, s := 1, 1, byte(0); s < 24; a, b, s = b, a+b, s+1 {
		skewed = append(skewed, bytes.Repeat([]byte{s}, a)...)
	}
	f(skewed, nil)
	require.Less(t, len(d.deflate(bytes.Repeat(noise[:100], 100), []value{{0, 90}, {100, 190}})), 300)
}

// TestDeflatedSize checks that the deflater compresses pieces about as well as a general-purpose
// compressor, even pieces of so few streets that most of the text has no earlier occurrence.
func TestDeflatedSize(t *testing.T) {
	for _, n := range []int{10, 40, 150} {
		c := new(compressor)
		c.write(protobuf, &piece{streets: streetsOf(t, city(n, noon)), view: view{whole: true, at: instantOf(noon)}, zone: newZone("UTC", noon, nil)})
		var general bytes.Buffer
		w, err := flate.NewWriter(&general, 6)
		require.NoError(t, err)
		_, err = w.Write(c.text)
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		require.Less(t, len(c.deflater.deflate(c.text, c.values)), general.Len()*105/100, "%d streets", n)
	}
}

// TestChangesAreSmall checks that the changes since a version are compressed to fewer bytes than
// the same text in the layer.
func TestChangesAreSmall(t *testing.T) {
	l := served(t, 500)
	first := l.current.Load()
	for _, f := range city(500, noon)[100:200] {
		for i, p := range f.Forecast {
			p.Speed = float64(100+(int(f.Street)*7919+i*104729)%900) / 10
		}
		l.Put(f)
	}
	rebuild(l, noon)
	p, ok := l.current.Load().zones["UTC"][0].changed(l.current.Load(), version{number: first.number, ref: first.ref})
	require.True(t, ok)
	require.Len(t, p.streets, 100)
	same := &piece{streets: p.streets, view: p.view, zone: p.zone, every: p.every, bare: p.bare, own: true}
	for f := range numFormats {
		small, large := p.form(f, gzipped), same.form(f, gzipped)
		require.Equal(t, large.plain, small.plain)
		require.Less(t, len(small.bytes), len(large.bytes)*98/100)
	}
}
