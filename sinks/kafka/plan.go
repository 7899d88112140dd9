package kafka

import (
	"encoding/binary"
	"errors"

	"github.com/segmentio/kafka-go/compress"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// formatVersion is the first byte of every encoded state and plan.
const formatVersion = 1

const unknownOffset = -1

// state describes the topic between two blocks. It is encoded as
//
//	version (1 byte); cluster ID (uvarint length, bytes); topic ID (16 bytes)
//	topic (uvarint length, bytes)
//	suspect, number of partitions (uvarint); per partition: last offset (varint)
type state struct {
	cluster string
	topicID dial.TopicID // topic that the offsets belong to; zero if unknown
	topic   string
	suspect int     // number of the next rows that may already be in the topic
	offsets []int64 // offset of the last acknowledged record, indexed by partition
}

// plan describes one block. A plan and the rows of its block determine every byte that is sent. It
// is encoded as
//
//	state; producer ID (varint), epoch (uvarint), codec (1 byte), rows (uvarint)
//	first and last row: batch ID (16 bytes), index (uvarint)
//	next sequence number of each partition (uvarint)
//
// The sequence numbers are not part of the state, because only the process that used them may
// continue them (doc.go, rule 3).
type plan struct {
	state
	session
	codec       compress.Compression
	rows        int
	first, last rowID
}

// session is a producer ID and its next sequence number in each partition.
type session struct {
	id        int64
	epoch     int16
	sequences []int32
}

// errFormat is wrapped by every error that decodePlan and decodeState return.
var errFormat = errors.New("invalid Kafka plan or state")

func (s state) encode() []byte {
	dst := batch.AppendCounted([]byte{formatVersion}, s.cluster)
	dst = append(dst, s.topicID[:]...)
	dst = batch.AppendCounted(dst, s.topic)
	dst = binary.AppendUvarint(dst, uint64(s.suspect))
	dst = binary.AppendUvarint(dst, uint64(len(s.offsets)))
	for _, offset := range s.offsets {
		dst = binary.AppendVarint(dst, offset)
	}
	return dst
}

// recreated reports whether id is the ID of a topic other than the one that the offsets belong to.
func (s state) recreated(id dial.TopicID) bool {
	return s.topicID != dial.TopicID{} && s.topicID != id
}

func (p plan) encode() []byte {
	dst := p.state.encode()
	dst = binary.AppendVarint(dst, p.id)
	dst = binary.AppendUvarint(dst, uint64(p.epoch))
	dst = append(dst, byte(p.codec))
	dst = binary.AppendUvarint(dst, uint64(p.rows))
	dst = appendRowID(dst, p.first)
	dst = appendRowID(dst, p.last)
	for _, sequence := range p.sequences {
		dst = binary.AppendUvarint(dst, uint64(sequence))
	}
	return dst
}

func decodeState(b []byte) (state, error) {
	r := batch.NewWireReader(b, errFormat)
	s := readState(&r)
	return s, r.End()
}

func decodePlan(b []byte) (plan, error) {
	r := batch.NewWireReader(b, errFormat)
	p := plan{state: readState(&r)}
	p.id, p.epoch = r.Varint(), int16(r.Uvarint())
	p.codec = compress.Compression(r.Byte())
	p.rows = int(r.Uvarint())
	p.first, p.last = readRowID(&r), readRowID(&r)
	for range p.offsets {
		p.sequences = append(p.sequences, int32(r.Uvarint()))
	}
	return p, r.End()
}

func readState(r *batch.WireReader) state {
	r.Version(formatVersion)
	s := state{cluster: string(r.Counted())}
	copy(s.topicID[:], r.Bytes(len(s.topicID)))
	s.topic, s.suspect = string(r.Counted()), int(r.Uvarint())
	for n := r.Count(); n > 0 && r.Err() == nil; n-- {
		s.offsets = append(s.offsets, r.Varint())
	}
	return s
}

func appendRowID(dst []byte, r rowID) []byte {
	return binary.AppendUvarint(append(dst, r.id[:]...), uint64(r.index))
}

func readRowID(r *batch.WireReader) (id rowID) {
	copy(id.id[:], r.Bytes(len(id.id)))
	id.index = uint32(r.Uvarint())
	return id
}
