package layers

import (
	"fmt"
	"sync"
	"time"

	"trafficd/schemas/contract"
)

// earlierLimit is the maximum size of what a client may be reading of earlier layers when it
// requests another body. A layer of 100,000 streets as JSON without compression takes about 200 MB,
// and a client may take an hour to read it.
const earlierLimit = 128 << 20

// source is memory that responses share: a document in a format and encoding, or changes.
type source struct {
	replaced <-chan struct{} // of the document
	format   format
	encoding encoding
	changes  *form // nil: the document
}

// unread records what clients have not read to the end. It is safe for concurrent use.
type unread struct {
	limit    int // earlierLimit
	mu       sync.Mutex
	byClient map[string]map[source]unreadSize
}

// unreadSize is the total size of a client's responses from a source, and the size of the source.
type unreadSize struct{ responses, source int }

func newUnread(limit int) *unread {
	return &unread{limit: limit, byClient: map[string]map[source]unreadSize{}}
}

// add adds a response, or returns a 503 if its client is reading more than the limit of replaced
// documents. Responses from one source count at most as much as the source.
func (u *unread) add(client string, s source, size unreadSize) *contract.APIError {
	u.mu.Lock()
	defer u.mu.Unlock()
	sources, earlier := u.byClient[client], 0
	for s, size := range sources {
		select {
		case <-s.replaced:
			earlier += min(size.responses, size.source)
		default:
		}
	}
	if earlier > u.limit {
		return contract.Unavailable(fmt.Sprintf("this client is still reading %d bytes of earlier layers, more than %d: read them or close "+
			"their connections, then try again", earlier, u.limit), time.Second)
	}
	if sources == nil {
		sources = map[source]unreadSize{}
		u.byClient[client] = sources
	}
	before := sources[s]
	sources[s] = unreadSize{before.responses + size.responses, max(before.source, size.source)}
	return nil
}

// remove removes a response that was added.
func (u *unread) remove(client string, s source, responses int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sources := u.byClient[client]
	size := sources[s]
	if size.responses -= responses; size.responses == 0 {
		delete(sources, s)
	} else {
		sources[s] = size
	}
}
