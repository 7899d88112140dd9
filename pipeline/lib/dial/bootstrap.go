package dial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// Bootstrap is the address at which a Transport or Dialer connects to one of the configured
// brokers. Clients use Kafka.Addr instead, so that errors name the brokers.
const Bootstrap = "bootstrap:0"

// bootstrap chooses a broker for requests that any broker can serve. After a failure it tries that
// broker last. Without it, kafka-go does not try another broker if one accepts connections but
// never responds, and its consumer groups try the first broker again and again.
type bootstrap struct {
	connect Func

	mu      sync.Mutex
	brokers []string // in the order in which they are tried
}

func newBootstrap(brokers []string, connect Func) *bootstrap {
	b := &bootstrap{connect: connect, brokers: slices.Clone(brokers)}
	rand.Shuffle(len(brokers), func(i, j int) { b.brokers[i], b.brokers[j] = b.brokers[j], b.brokers[i] }) // to spread the load
	return b
}

func (b *bootstrap) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	brokers := slices.Clone(b.brokers)
	b.mu.Unlock()
	var errs []error
	for _, address := range brokers {
		c, err := b.connect(ctx, "tcp", address)
		if err == nil {
			return &bootstrapConn{c, func() { b.failed(address) }}, nil
		}
		errs = append(errs, err)
		if !errors.Is(ctx.Err(), context.Canceled) { // if the caller has given up, the broker is not to blame
			b.failed(address)
		}
		if ctx.Err() != nil { // there is no time for the other brokers
			break
		}
	}
	return nil, errors.Join(errs...)
}

// failed moves a broker to the end of the list.
func (b *bootstrap) failed(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.brokers, address); i >= 0 {
		b.brokers = append(slices.Delete(b.brokers, i, i+1), address)
	}
}

// bootstrapConn calls failed if it cannot read a response.
type bootstrapConn struct {
	net.Conn
	failed func()
}

func (c *bootstrapConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.failed()
	}
	return n, err
}

// anyBroker is the address Bootstrap. Errors show it as the list of configured brokers.
type anyBroker []string

func (anyBroker) Network() string              { return "tcp" }
func (anyBroker) String() string               { return Bootstrap }
func (a anyBroker) Format(s fmt.State, _ rune) { fmt.Fprint(s, []string(a)) }
