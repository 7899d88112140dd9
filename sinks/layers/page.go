package layers

import (
	"bytes"
	"slices"
)

// page is a run of pieces in one stretch of memory for each encoding. It is what a document
// shares with the one before: an update makes only those pages anew in which something
// changed. The pieces are views into it, so that nothing is kept twice.
type page struct {
	start   key // the first street of its first bucket
	pieces  []*piece
	between *piece // stands between the pieces, nil if nothing does
	follows bool   // it also stands before the first
	content checksum
	forms   [encodings][]byte
}

// same tells whether the pages have the same bytes, because they have the same pieces.
func (p *page) same(o *page) bool {
	return p.follows == o.follows && slices.Equal(p.pieces, o.pieces)
}

// fill takes the checksum and puts the pieces together.
func (p *page) fill() {
	for _, text := range p.texts(identity) {
		p.content = p.content.add(text)
	}
	for e := range encodings {
		p.join(e, nil, nil)
	}
}

// join puts the pieces together in one encoding, with head before and tail behind them.
func (p *page) join(e encoding, head, tail []byte) (whole []byte) {
	texts := p.texts(e)
	whole = bytes.Join(slices.Concat([][]byte{head}, texts, [][]byte{tail}), nil)
	p.forms[e] = whole[len(head) : len(whole)-len(tail) : len(whole)-len(tail)]
	rest := p.forms[e]
	for i, one := range p.pieces {
		if p.separates(i) {
			rest = rest[len(p.between.forms[e]):]
		}
		n := len(one.forms[e])
		one.forms[e], rest = rest[:n:n], rest[n:]
	}
	return whole
}

// texts lists the pieces, and what stands between them, in one encoding.
func (p *page) texts(e encoding) [][]byte {
	list := make([][]byte, 0, 2*len(p.pieces))
	for i, one := range p.pieces {
		if p.separates(i) {
			list = append(list, p.between.forms[e])
		}
		list = append(list, one.forms[e])
	}
	return list
}

// separates tells whether something stands before the piece.
func (p *page) separates(i int) bool { return p.between != nil && (i > 0 || p.follows) }
