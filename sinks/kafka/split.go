package kafka

import "trafficd/pipeline/batch"

// fill is the content of a partition's record batch while a block is planned.
type fill struct {
	rows, bytes int
}

// fit returns how many of the first rows go into one block: at most maxRows, and so many that no
// partition gets more than one record batch of maxBytes before compression. It is at least 1, even
// for a single row larger than maxBytes.
func fit(offered batch.Block, partitions, maxBytes, maxRows int) int {
	fills := make([]fill, partitions)
	n := 0
	for _, s := range offered {
		for r := s.From; r < s.To; r++ {
			f := &fills[PartitionOf(s.Code(r), partitions)]
			f.bytes += recordSize(s.Batch, r)
			if n == maxRows || f.rows > 0 && f.bytes+batchOverhead > maxBytes {
				return n
			}
			f.rows++
			n++
		}
	}
	return n
}

// divide returns the rows of each partition in the order of the block. The slices share one array.
func divide(block batch.Block, partitions int) [][]row {
	n := block.Rows()
	of, ends := make([]int32, 0, n), make([]int, partitions)
	for _, s := range block {
		for r := s.From; r < s.To; r++ {
			p := PartitionOf(s.Code(r), partitions)
			of = append(of, int32(p))
			ends[p]++
		}
	}
	all, shares := make([]row, n), make([][]row, partitions)
	start := 0
	for p, count := range ends {
		shares[p] = all[start : start : start+count]
		start += count
	}
	i := 0
	for at, s := range block {
		for r := s.From; r < s.To; r++ {
			p := of[i]
			shares[p] = append(shares[p], row{span: uint32(at), row: uint32(r)})
			i++
		}
	}
	return shares
}

// name identifies a row by what its record's headers say: batch id and index.
type name struct {
	id    batch.ID
	index uint32
}

func nameOf(block batch.Block, at row) name {
	b := block[at.span].Batch
	return name{id: b.ID, index: b.Index[at.row]}
}

// endsOf returns the names of the first and the last row of a block that has at least one.
func endsOf(block batch.Block) (first, last name) {
	lo, hi := 0, len(block)-1
	for block[lo].From == block[lo].To {
		lo++
	}
	for block[hi].From == block[hi].To {
		hi--
	}
	return nameOf(block, row{span: uint32(lo), row: uint32(block[lo].From)}),
		nameOf(block, row{span: uint32(hi), row: uint32(block[hi].To - 1)})
}
