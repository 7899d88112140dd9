package forecasts

import (
	"cmp"
	"fmt"
	"time"
)

// latest is the most recent record of a street.
type latest struct {
	tombstone bool
	partition int
	offset    int64
	at        time.Time // latest time of the street's records in this partition
	bytes     int64     // approximate memory
}

// follows reports whether l is later than before. Within a partition, offsets decide; between
// partitions, timestamps do. The result does not depend on which partition is read first.
func (l latest) follows(before latest) bool {
	if l.partition == before.partition {
		return l.offset > before.offset
	}
	return cmp.Or(l.at.Compare(before.at), cmp.Compare(l.partition, before.partition)) > 0
}

func (l latest) position() string {
	return fmt.Sprintf("partition %d offset %d", l.partition, l.offset)
}

// streetBytes is the approximate memory used by a street, without its record.
const streetBytes = 200

// store holds the latest record of each street of a topic.
type store struct {
	maxBytes int64
	streets  map[identity]latest
	bytes    int64 // approximate memory used by streets
	removed  int   // number of tombstones in streets
}

func (s *store) clear() {
	s.streets = make(map[identity]latest)
	s.bytes, s.removed = 0, 0
}

// put stores a record if it is the latest of its street, and reports whether it is. It returns an
// error if the store would need more than maxBytes.
func (s *store) put(id identity, l latest) (bool, error) {
	before, known := s.streets[id]
	if known && !l.follows(before) {
		return false, nil
	}
	if known && l.partition == before.partition && l.at.Before(before.at) {
		l.at = before.at // the producer's clock was set back
	}
	if s.bytes-before.bytes+l.bytes > s.maxBytes {
		return false, fmt.Errorf("the streets of the topic need more than %d bytes: raise forecasts.max_bytes and restart trafficd", s.maxBytes)
	}
	s.forget(id)
	s.streets[id] = l
	s.bytes += l.bytes
	if l.tombstone {
		s.removed++
	}
	return true, nil
}

// present returns the streets whose latest record is not a tombstone.
func (s *store) present() map[identity]struct{} {
	ids := make(map[identity]struct{}, len(s.streets))
	for id, l := range s.streets {
		if !l.tombstone {
			ids[id] = struct{}{}
		}
	}
	return ids
}

// forget removes the record of a street, if there is one.
func (s *store) forget(id identity) {
	l := s.streets[id]
	s.bytes -= l.bytes
	if l.tombstone {
		s.removed--
	}
	delete(s.streets, id)
}

// forgetTombstones discards all tombstones if most records are tombstones. They only prevent the
// use of an older record in another partition, and brokers also delete them after a day.
func (s *store) forgetTombstones() {
	if s.removed <= len(s.streets)/2 {
		return
	}
	for id, l := range s.streets {
		if l.tombstone {
			s.forget(id)
		}
	}
}
