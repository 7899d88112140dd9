package layers

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// body is a finished answer: some stretches of memory, one after the other.
type body struct {
	stretches [][]byte
	size      int
	etag      []byte
}

// bodies makes the answers of the document that consists of these pages.
func (p *press) bodies(pages []*page) (all [encodings]body) {
	opening, closing := opens[p.format], closes[p.format]
	content := checksum{}.add(opening.forms[identity])
	for _, page := range pages {
		content = content.then(page.content)
	}
	ends := tails(content.add(closing.forms[identity]))
	for e := range encodings {
		head := slices.Concat(heads[e], opening.forms[e])
		tail := slices.Concat(closing.forms[e], ends[e])
		all[e] = newBody(stretches(e, pages, head, tail), p.tag(e, pages))
	}
	return all
}

// stretches lists what a body consists of. A single page gets head and tail into its own
// stretch, so that a small layer is sent in one go.
func stretches(e encoding, pages []*page, head, tail []byte) [][]byte {
	if len(pages) == 1 {
		return [][]byte{pages[0].join(e, head, tail)}
	}
	list := make([][]byte, 0, len(pages)+2)
	list = append(list, head)
	for _, page := range pages {
		list = append(list, page.forms[e])
	}
	return append(list, tail)
}

// tag is a hash of the pieces' hashes, so that a small change need not go over all
// bytes again. What is not in a piece goes by the format.
func (p *press) tag(e encoding, pages []*page) []byte {
	sums := slices.Clone(mediaTypes[p.format])
	for _, page := range pages {
		for _, one := range page.pieces {
			sums = binary.LittleEndian.AppendUint64(sums, one.sums[e])
		}
	}
	return fmt.Appendf(nil, `"%016x%s"`, xxhash.Sum64(sums), etagSuffix[e])
}

func newBody(list [][]byte, etag []byte) body {
	b := body{etag: etag}
	for _, stretch := range list {
		if len(stretch) > 0 {
			b.stretches, b.size = append(b.stretches, stretch), b.size+len(stretch)
		}
	}
	return b
}
