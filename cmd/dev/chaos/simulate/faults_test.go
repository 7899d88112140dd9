package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/pipeline/sinktest"
)

// fault is one entry of a schedule. All that it does follows from it.
type fault struct {
	at    time.Duration // since the start
	kind  string
	store string        // for faults of the network
	n     int           // a number whose meaning depends on the kind
	last  time.Duration // for faults that last
}

func (f fault) String() string {
	return strings.TrimSpace(fmt.Sprintf("%8.3fs %s %s n=%d for %s", f.at.Seconds(), f.kind, f.store, f.n, f.last))
}

// kinds are the faults, and how often they occur relative to each other.
var kinds = []struct {
	kind   string
	weight int
	apply  func(w *world, f fault)
}{
	{"kill", 6, func(w *world, f fault) { w.restart(f, "", 0, false) }},
	{"power loss", 8, func(w *world, f fault) { w.restart(f, "", 0, true) }},
	{"power loss within writes", 8, func(w *world, f fault) {
		w.disk.SetBudget(f.n % 40)
		time.Sleep(f.last / 8)
		w.restart(f, "", 0, true)
	}},
	{"kill at a sync", 8, func(w *world, f fault) { w.restart(f, "sync", 1+f.n/2%8, f.n%2 == 0) }},
	{"kill after a request", 10, func(w *world, f fault) { w.restart(f, f.store+" is sent bytes", 1+f.n/2%16, f.n%2 == 0) }},
	{"kill before an answer", 10, func(w *world, f fault) { w.restart(f, f.store+" answers", 1+f.n/2%16, f.n%2 == 0) }},
	{"stop", 4, func(w *world, f fault) {
		w.stopDaemon()
		w.startAgain(f)
	}},
	{"disk error", 12, func(w *world, f fault) { w.disk.FailOnce(diskCalls[f.n%len(diskCalls)]) }},
	{"disk errors", 3, func(w *world, f fault) {
		rng, disk := random(uint64(f.n), 7), w.disk
		disk.SetFault(func(string, string) bool { return rng.IntN(8) == 0 })
		time.AfterFunc(f.last, func() { disk.SetFault(nil) })
	}},
	{"disk full", 4, func(w *world, f fault) {
		disk := w.disk
		disk.Fill(int64(f.n % 4000))
		time.AfterFunc(f.last, func() { disk.Fill(-1) })
	}},
	{"cut", 10, func(w *world, f fault) { w.network.cut(f.store) }},
	{"response lost", 14, func(w *world, f fault) { w.network.set(f.store, func(l *link) { l.cutReply = 1 + f.n%3 }) }},
	{"half of a request lost", 8, func(w *world, f fault) { w.network.set(f.store, func(l *link) { l.cutInside = 1 + f.n%2 }) }},
	{"slow", 6, func(w *world, f fault) {
		w.network.set(f.store, func(l *link) { l.slow, l.delay = time.Now().Add(f.last), time.Duration(f.n%20_000)*time.Millisecond })
	}},
	{"half-open", 6, func(w *world, f fault) {
		w.network.set(f.store, func(l *link) { l.stalled, l.oneWay = time.Now().Add(f.last), f.n%2 == 0 })
	}},
	{"down", 6, func(w *world, f fault) {
		w.network.set(f.store, func(l *link) { l.down = time.Now().Add(f.last) })
		w.network.cut(f.store)
	}},
	{"acknowledgement of an INSERT lost", 5, func(w *world, f fault) { w.archive.LoseNext(1 + f.n%3) }},
	{"INSERT interrupted between parts", 5, func(w *world, f fault) { w.archive.TearNext(1 + f.n%3) }},
	{"deduplication window ends", 4, func(w *world, f fault) { w.archive.ForgetTokens() }},
	{"archive refuses", 4, func(w *world, f fault) {
		code := refusals[f.n%len(refusals)]
		w.archive.RefuseIf(func(statement string, rows []sinktest.Row) *proto.Exception {
			if !strings.HasPrefix(statement, "INSERT") || f.n%2 == 0 && rows == nil {
				return nil
			}
			return &proto.Exception{Code: code, Name: "REFUSED", Message: "refused"}
		})
		time.AfterFunc(f.last, func() { w.archive.RefuseIf(nil) })
	}},
	{"leader moves", 8, func(w *world, f fault) {
		_ = w.broker.MoveTopicPartition(topic, int32(f.n%partitions), int32(f.n/partitions%brokers))
	}},
	{"broker rejects", 8, func(w *world, f fault) {
		w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: rejections[f.n%len(rejections)], Count: 1 + f.n/8%3})
	}},
	{"topic recreated", 2, func(w *world, f fault) {
		w.network.set(broker, func(l *link) { l.down = time.Now().Add(time.Hour) })
		w.network.cut(broker)
		time.Sleep(time.Second) // requests that have arrived are done
		w.former = append(w.former, w.records()...)
		w.topics++
		if err := w.broker.DeleteTopic(topic); err != nil {
			w.fault("cannot delete the topic: %v", err)
		}
		if err := w.broker.CreateTopic(topic, partitions, nil); err != nil {
			w.fault("cannot create the topic: %v", err)
		}
		w.network.set(broker, func(l *link) { l.down = time.Time{} })
	}},
	{"clock jumps", 6, func(w *world, f fault) {
		jump := time.Duration(f.n%1200-600) * time.Second
		w.setSkew(jump)
		time.AfterFunc(f.last, func() { w.setSkew(0) })
	}},
}

var diskCalls = []string{"sync", "sync", "write", "write", "truncate", "syncdir", "create", "open", "rename", "remove"}

var refusals = []proto.Error{
	proto.ErrTooManyParts, proto.ErrMemoryLimitExceeded, proto.ErrTooManySimultaneousQueries, proto.ErrTimeoutExceeded,
}

var rejections = []*kerr.Error{
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.KafkaStorageError,
	kerr.CoordinatorNotAvailable,
}

func (w *world) setSkew(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew = d
}

// restart kills the daemon and starts it again after a while.
func (w *world) restart(f fault, what string, n int, powerLost bool) {
	w.killDaemon(what, n, powerLost)
	if f.n/64%4 == 0 { // the daemon was down for longer than the window
		w.archive.ForgetTokens()
	}
	w.startAgain(f)
}

func (w *world) startAgain(f fault) {
	time.Sleep(f.last / 4)
	var err error
	for range 30 {
		if err = w.startDaemon(); err == nil {
			return
		}
		w.trace.add("daemon does not start: %v", err)
		w.newLife(w.disk.Crash(false))
		time.Sleep(time.Second)
	}
	w.giveUp("the daemon does not start after %s: %v", f, err)
}

// schedule returns the faults of a run, in order.
func schedule(seed uint64, length time.Duration) (faults []fault) {
	rng := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for at := time.Duration(0); ; {
		at += time.Duration(rng.Int64N(int64(50 * time.Second)))
		if at >= length {
			return faults
		}
		f := fault{at: at, store: archive, n: rng.IntN(1 << 30), last: time.Second + time.Duration(rng.Int64N(int64(time.Minute)))}
		if rng.IntN(2) == 0 {
			f.store = broker
		}
		pick := rng.IntN(total)
		for _, k := range kinds {
			if pick -= k.weight; pick < 0 {
				f.kind = k.kind
				break
			}
		}
		faults = append(faults, f)
	}
}

func (w *world) apply(f fault) {
	w.trace.add("fault %s", f)
	for _, k := range kinds {
		if k.kind == f.kind {
			k.apply(w, f)
		}
	}
}
