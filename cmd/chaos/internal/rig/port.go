package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// given are the ports that freePort has found: whoever asked may not listen yet.
var given sync.Map

// freePort is below Linux's range for outgoing connections: one of those could
// sit on the port while its server is down.
func freePort() (int, error) {
	for range 100 {
		port := 12000 + rand.IntN(20000)
		if _, twice := given.LoadOrStore(port, nil); twice {
			continue
		}
		if l, err := net.Listen("tcp", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("cannot find a free port between 12000 and 32000")
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// eventually tries until it works; the error is the last one.
func eventually(ctx context.Context, limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), err)
		case time.Now().After(deadline):
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
