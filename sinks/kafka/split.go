package kafka

import (
	"encoding/binary"

	"trafficd/pipeline/batch"
)

// fill is the size of a partition's record batch while a block is planned.
type fill struct {
	rows, bytes int
}

// fit returns the number of rows in the next block: at most maxRows, and no more than fit into one
// record batch of maxBytes, before compression, per partition. It is at least 1, even if the first
// row is larger than maxBytes.
func fit(offered batch.Block, partitions, maxBytes, maxRows int) int {
	fills := make([]fill, partitions)
	n := 0
	for _, s := range offered {
		for r := s.From; r < s.To; r++ {
			f := &fills[partitionOf(s.Code(r), partitions)]
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
			p := partitionOf(s.Code(r), partitions)
			shares[p] = append(shares[p], row{span: uint32(at), row: uint32(r)})
		}
	}
	return shares
}

// name identifies a row in the topic by the headers of its record, batch id and index.
type name struct {
	id    batch.ID
	index uint32
}

func nameOf(block batch.Block, at row) name {
	b := block[at.span].Batch
	return name{id: b.ID, index: b.Index[at.row]}
}

// endsOf returns the names of the first and the last row of a block, which must have rows.
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

// partitionOf returns the partition of a key among n partitions, n > 0, as the default partitioner
// of the Java client chooses it.
func partitionOf(key []byte, n int) int {
	return int(murmur2(key)&0x7fffffff) % n
}

// murmur2 is MurmurHash2 with the seed of org.apache.kafka.common.utils.Utils.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
