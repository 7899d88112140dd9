package forecasts

import (
	"maps"
	"time"
)

// cut decides when the records read so far are whole publications. Partitions are read one after
// the other, and the commit of a transaction reaches them one after the other, so that a poll may
// see a transaction in some partitions only.
//
// All records of a transaction are written before it is committed in any partition. So once a poll
// has seen a transaction, the high watermarks of the next poll are behind all of its records, and
// once every partition has been read up to these, the transaction is whole. Records of transactions
// that are first seen meanwhile are held until then. A transaction is identified by its producer
// and epoch, which grows with each publication of trafficctl, and with each transaction of clients
// of Kafka 4. If a producer commits several under one epoch in quick succession, they are treated
// like records without a transaction.
//
// Those are applied as they are read, and considered whole when a poll reads nothing new.
type cut struct {
	started  bool            // a poll has read every partition to its end
	moving   bool            // the current poll has applied records
	settling map[int64]int16 // the transactions to be read to their end: by producer, the last epoch
	barrier  map[int]int64   // by partition, where they end at the latest; nil until known
	later    map[int64]int16 // the transactions held, like settling
	held     store
	newest   time.Time // time of the newest record held
	since    time.Time // when updates began to wait; zero if none does
}

func (c *cut) startOver() {
	*c = cut{settling: make(map[int64]int16), later: make(map[int64]int16), held: store{maxBytes: c.held.maxBytes}}
	c.held.clear()
}

// holds reports whether a transaction's records are held. Before the first poll has ended nothing
// is visible and memory would not suffice: none is.
func (c *cut) holds(producer int64, epoch int16) bool {
	seen := c.settling
	if c.started {
		if last, ok := c.settling[producer]; ok && epoch <= last {
			return false
		}
		seen = c.later
	}
	seen[producer] = max(seen[producer], epoch)
	return c.started
}

// endPoll notes the end of a poll, given the next offset and the high watermark of each partition.
// It reports whether all updates that were applied are whole; if not, whether that is because of a
// transaction.
func (c *cut) endPoll(next, ends map[int]int64, failed bool) (whole, transaction bool) {
	moving := c.moving
	c.moving = false
	if failed {
		return false, len(c.settling) > 0
	}
	if c.started && c.barrier == nil {
		c.barrier = maps.Clone(ends)
	}
	c.started = true
	if len(c.settling) > 0 {
		transaction = c.barrier == nil
		for partition, end := range c.barrier {
			transaction = transaction || next[partition] < end
		}
	}
	return !moving && !transaction, transaction
}

// waited returns how long updates have been waiting.
func (c *cut) waited(now time.Time) time.Duration {
	if c.since.IsZero() {
		c.since = now
	}
	return now.Sub(c.since)
}

// advance returns the records held and the time of the newest: they are to be applied, and read to
// the end of their transactions.
func (c *cut) advance() (held map[identity]latest, newest time.Time) {
	held, newest = c.held.streets, c.newest
	c.settling, c.later = c.later, make(map[int64]int16)
	c.barrier, c.since, c.newest = nil, time.Time{}, time.Time{}
	c.held.clear()
	return held, newest
}
