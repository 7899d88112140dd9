package layers

import (
	"fmt"
	"sync"
	"time"

	"trafficd/schemas/contract"
)

// earlierLimit is the maximum size of the bodies of earlier layers that a client may be reading
// when it requests another body. A layer of 100,000 streets as JSON without compression takes
// about 200 MB, and a client may take an hour to read it.
const earlierLimit = 128 << 20

// unread contains the streams that clients have not read to the end. It is safe for concurrent use.
type unread struct {
	limit    int // earlierLimit
	mu       sync.Mutex
	byClient map[string]map[*stream]struct{}
}

func newUnread(limit int) *unread {
	return &unread{limit: limit, byClient: map[string]map[*stream]struct{}{}}
}

// add adds a stream, or returns a 503 if the other bodies that its client is reading have been
// replaced and take more than the limit.
func (u *unread) add(s *stream) *contract.APIError {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.byClient[s.client]
	if size := earlierThan(s, own); size > u.limit {
		return contract.Unavailable(fmt.Sprintf("this client is still reading %d bytes of earlier layers, more than %d: read them or close "+
			"their connections, then try again", size, u.limit), time.Second)
	}
	if own == nil {
		own = map[*stream]struct{}{}
		u.byClient[s.client] = own
	}
	own[s] = struct{}{}
	return nil
}

// earlierThan returns the size of the replaced bodies of others, each counted once, except s's.
func earlierThan(s *stream, others map[*stream]struct{}) (size int) {
	var counted map[*body]bool
	for other := range others {
		select {
		case <-other.replaced:
		default:
			continue
		}
		if other.body == s.body || counted[other.body] {
			continue
		}
		if counted == nil {
			counted = map[*body]bool{}
		}
		counted[other.body] = true
		size += other.body.size
	}
	return size
}

func (u *unread) remove(s *stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byClient[s.client], s)
}
