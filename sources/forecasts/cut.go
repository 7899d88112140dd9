package forecasts

import (
	"maps"
	"time"
)

// cut decides when the records read so far form complete publications, that is, a consistent cut
// through the partitions. Partitions are read one after the other, and a transaction is committed
// in one after the other, so a poll may see a transaction in only some partitions.
//
// All records of a transaction are written before it is committed in any partition. So once a poll
// has seen a transaction, the high watermarks of the next poll are past all of its records. When
// every partition has been read up to its high watermark, the transaction is complete. Records of
// transactions that are first seen in the meantime are held until then. A transaction is identified
// by its producer and epoch. trafficctl increments the epoch for each publication, and Kafka 4
// clients increment it for each transaction. If a producer commits several transactions under one
// epoch in quick succession, they are treated like records without a transaction.
//
// Records without a transaction are applied as they are read, and are considered complete when a
// poll reads nothing new.
type cut struct {
	started  bool            // a poll has read every partition to its end, and found records or no open transaction
	moving   bool            // the current poll has applied records
	settling map[int64]int16 // keyed by producer: latest epoch of the transactions that must be read to their end
	barrier  map[int]int64   // keyed by partition: high watermark past all records of settling transactions; nil until known
	deferred map[int64]int16 // keyed by producer: latest epoch of the transactions whose records are held
	held     store
	newest   time.Time // time of the newest record held
	since    time.Time // when updates began to wait; zero if none are waiting
}

// startOver resets c before a topic is read from its beginning.
func (c *cut) startOver() {
	*c = cut{settling: make(map[int64]int16), deferred: make(map[int64]int16), held: store{maxBytes: c.held.maxBytes}}
	c.held.clear()
}

// holds notes a transaction, and reports whether its records must be held. None are held before the
// end of the first poll, because nothing is visible yet and they might not fit in memory.
func (c *cut) holds(producer int64, epoch int16) bool {
	seen := c.settling
	if c.started {
		if last, ok := c.settling[producer]; ok && epoch <= last {
			return false
		}
		seen = c.deferred
	}
	seen[producer] = max(seen[producer], epoch)
	return c.started
}

// endPoll records the end of a poll, given the next offset and the high watermark of each
// partition. complete is true if all applied updates are complete publications; transaction is true
// if a transaction is incomplete.
func (c *cut) endPoll(next, ends map[int]int64, failed bool) (complete, transaction bool) {
	moving := c.moving
	c.moving = false
	if failed {
		return false, len(c.settling) > 0
	}
	if !c.started && !moving && behind(next, ends) { // the first transaction is not committed yet
		return false, true
	}
	if c.started && c.barrier == nil {
		c.barrier = maps.Clone(ends)
	}
	c.started = true
	if len(c.settling) > 0 {
		transaction = c.barrier == nil || behind(next, c.barrier)
	}
	return !moving && !transaction, transaction
}

// behind reports whether any partition has not been read up to its end.
func behind(next, ends map[int]int64) bool {
	for partition, end := range ends {
		if next[partition] < end {
			return true
		}
	}
	return false
}

// advance returns the held records, which the caller must apply, and the time of the newest one.
// Their transactions become the ones that must be read to their end.
func (c *cut) advance() (held map[identity]latest, newest time.Time) {
	held, newest = c.held.streets, c.newest
	c.settling, c.deferred = c.deferred, make(map[int64]int16)
	c.barrier, c.since, c.newest = nil, time.Time{}, time.Time{}
	c.held.clear()
	return held, newest
}
