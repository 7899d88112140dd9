package kafka

import (
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// fit returns the number of rows in the next block: at most maxRows, and no more than fit into one
// record batch of maxBytes, before compression, per partition. It is at least 1, even if the first
// row is larger than maxBytes.
func fit(offered batch.Block, partitions, maxBytes, maxRows int) int {
	fills := make([]struct{ rows, bytes int }, partitions) // sizes of the record batches so far
	n := 0
	for _, s := range offered {
		for r := s.From; r < s.To; r++ {
			f := &fills[dial.PartitionOf(s.Code(r), partitions)]
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

// divide returns the rows of each partition in the order of the block.
func divide(block batch.Block, partitions int) [][]row {
	shares := make([][]row, partitions)
	for at, s := range block {
		for r := s.From; r < s.To; r++ {
			p := dial.PartitionOf(s.Code(r), partitions)
			shares[p] = append(shares[p], row{span: uint32(at), row: uint32(r)})
		}
	}
	return shares
}

// rowID identifies a row by its batch ID and index, which are headers of its record.
type rowID struct {
	id    batch.ID
	index uint32
}

func rowIDOf(block batch.Block, at row) rowID {
	b := block[at.span].Batch
	return rowID{id: b.ID, index: b.Index[at.row]}
}

// firstAndLast returns the IDs of the first and last rows of a block. No span may be empty.
func firstAndLast(block batch.Block) (first, last rowID) {
	end := len(block) - 1
	return rowIDOf(block, row{row: uint32(block[0].From)}), rowIDOf(block, row{span: uint32(end), row: uint32(block[end].To - 1)})
}
