package layers

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// maxCellStreets is the maximum number of streets in a cell; the mean is about two thirds of it.
// Each cell is compressed separately, so smaller cells make updates cheaper and bodies larger. The
// table is for 100,000 streets with 12 periods each. Sizes are relative to gzip -6:
//
//	maximum   mean   layer   horizon
//	    200    146    1.05      1.16
//	    400    288    1.03      1.10
//	    800    546    1.02      1.06
const maxCellStreets = 400

// cell is a run of consecutive streets: those in a square of the map, or half of one. Its streets
// are immutable; its pieces belong to the builder.
type cell struct {
	streets []*street
	bounds  area // the smallest area that contains all places of the streets
	located bool // all streets have a place
	pieces  []*piece
}

// cut divides the streets, which are in order, into cells, and reuses each old cell that has the
// same streets. It halves cells with more than limit streets. Their boundaries depend only on the
// streets.
func cut(streets []*street, limit int, old []*cell) (cells []*cell) {
	known := make(map[key]*cell, len(old))
	for _, c := range old {
		known[c.streets[0].id] = c
	}
	var divide func(run []*street, bit int) // the positions of the run are equal above bit
	divide = func(run []*street, bit int) {
		switch {
		case len(run) == 0:
		case len(run) <= limit || bit < 0:
			if c := known[run[0].id]; c != nil && slices.Equal(c.streets, run) {
				cells = append(cells, c)
				return
			}
			c := &cell{streets: slices.Clone(run), bounds: noArea, located: true} // a subslice would keep all streets in memory
			for _, s := range run {
				if s.located {
					c.bounds = c.bounds.extend(s.place)
				}
				c.located = c.located && s.located
			}
			cells = append(cells, c)
		default:
			half := sort.Search(len(run), func(i int) bool { return run[i].position>>bit&1 == 1 })
			divide(run[:half], bit-1)
			divide(run[half:], bit-1)
		}
	}
	divide(streets, 63)
	return cells
}

// piece returns what a view shows of the cell in a time zone, or nil if it is not built. Horizons
// share a piece if they show the same throughout an interval: in a quarter of an hour, the
// 15-minute horizon shows what the 30-minute horizon shows now.
func (c *cell) piece(z *zone, v view) *piece {
	for _, p := range c.pieces {
		if p.zone == z && p.view.kind() == v.kind() && p.from <= v.at && v.at < p.until {
			return p
		}
	}
	return nil
}

// piece is a run of streets as a view shows it in a time zone, in the forms that were needed so
// far.
type piece struct {
	streets     []*street
	view        view
	zone        *zone
	every       bool    // also show streets without a period; true for changes
	own         bool    // made for a single request
	from, until instant // the piece is the same for all values of view.at in [from, until)
	empty       bool    // nothing is shown
	sum         uint64  // hash of what is shown
	forms       [numFormats][numEncodings]atomic.Pointer[form]
	making      sync.Mutex // held while a form is made
}

func newPiece(streets []*street, v view, z *zone, every bool) *piece {
	p := &piece{streets: streets, view: v, zone: z, every: every, from: -never, until: never, empty: true}
	var picked []int
	var content []byte
	hash := xxhash.New()
	for _, s := range streets {
		var from, until instant
		picked, from, until = v.pick(picked, s)
		p.from, p.until = max(p.from, from), min(p.until, until)
		if len(picked) > 0 || every {
			content = s.appendContent(content[:0], picked, v.all)
			_, _ = hash.Write(content)
			p.empty = false
		}
	}
	p.sum = hash.Sum64()
	return p
}

// form returns a form of the piece, and makes it first if necessary.
func (p *piece) form(f format, e encoding) *form {
	if made := p.forms[f][e].Load(); made != nil {
		return made
	}
	p.making.Lock()
	defer p.making.Unlock()
	made := p.forms[f][e].Load()
	if made == nil {
		c := compressors.Get().(*compressor)
		defer compressors.Put(c)
		c.text = p.appendText(c.text[:0], f)
		made = c.form(c.text, e, p.level(len(c.text)))
		p.forms[f][e].Store(made)
	}
	return made
}
