package layers

import (
	"fmt"
	"sync"
	"time"

	"trafficd/pipeline/admission"
	"trafficd/schemas/contract"
)

const (
	// madeLimit is the memory that responses made for single requests may use, because clients may
	// read slowly. In a layer of 100,000 streets, the largest one takes less than 20 MB.
	madeLimit = 256 << 20
	// earlierLimit is the maximum size of what a client may be reading of earlier layers when it
	// requests another body. A layer of 100,000 streets as JSON without compression takes about 200
	// MB, and a client may take an hour to read it.
	earlierLimit = 128 << 20
)

// unread limits the memory of responses that clients have not read to the end. It is safe for
// concurrent use.
type unread struct {
	made     *admission.Quotas // for what was made for single requests
	limit    int               // of what clients read of earlier layers
	mu       sync.Mutex
	byClient map[string]map[source]sizes
}

// source is memory that responses share: a document in a format and encoding, or changes.
type source struct {
	replaced <-chan struct{} // of the document
	format   format
	encoding encoding
	changes  *form // nil: the document
}

// sizes describes one or more responses from a source.
type sizes struct {
	shared int // total size of what they share with other responses
	whole  int // size of the source
}

// kept is what a response keeps in memory.
type kept struct {
	source
	sizes
	own int64 // size of what was made for the response
}

func newUnread() *unread {
	return &unread{made: admission.New(madeLimit, memory), limit: earlierLimit, byClient: map[string]map[source]sizes{}}
}

// add adds a response, or returns a 503 if its client is reading more than the limit of replaced
// documents. Responses from one source count at most as much as the source.
func (u *unread) add(client string, k kept) *contract.APIError {
	u.mu.Lock()
	defer u.mu.Unlock()
	sources, earlier := u.byClient[client], 0
	for source, all := range sources {
		select {
		case <-source.replaced:
			earlier += min(all.shared, all.whole)
		default:
		}
	}
	if earlier > u.limit {
		return contract.Unavailable(fmt.Sprintf("this client is still reading %d bytes of earlier layers, more than %d: read them or close "+
			"their connections, then try again", earlier, u.limit), time.Second)
	}
	if sources == nil {
		sources = map[source]sizes{}
		u.byClient[client] = sources
	}
	all := sources[k.source]
	sources[k.source] = sizes{all.shared + k.shared, max(all.whole, k.whole)}
	u.made.Charge(client, k.own)
	return nil
}

// remove removes a response that was added.
func (u *unread) remove(client string, k kept) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sources := u.byClient[client]
	all := sources[k.source]
	if all.shared -= k.shared; all.shared > 0 {
		sources[k.source] = all
	} else {
		delete(sources, k.source)
	}
	u.made.Discharge(client, k.own)
}
