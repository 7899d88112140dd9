package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

type kind struct {
	name   string
	weight int // how often it occurs relative to the others
	apply  func(w *world, f fault)
}

// kinds are the faults of all worlds.
var kinds = []kind{
	{"kill", 6, func(w *world, f fault) { w.restart(f, "", 0, false) }},
	{"power loss", 8, func(w *world, f fault) { w.restart(f, "", 0, true) }},
	{"power loss within writes", 8, func(w *world, f fault) {
		w.replica(f).disk.SetBudget(f.n % 40)
		time.Sleep(f.last / 8)
		w.restart(f, "", 0, true)
	}},
	{"kill at a sync", 8, func(w *world, f fault) { w.restart(f, "sync", 1+f.n/2%8, f.n%2 == 0) }},
	{"kill after a request", 10, func(w *world, f fault) { w.restart(f, f.store+" is sent bytes", 1+f.n/2%16, f.n%2 == 0) }},
	{"kill before an answer", 10, func(w *world, f fault) { w.restart(f, f.store+" answers", 1+f.n/2%16, f.n%2 == 0) }},
	{"stop", 4, func(w *world, f fault) {
		w.replica(f).stop()
		w.startAgain(f)
	}},
	{"disk error", 12, func(w *world, f fault) { w.replica(f).disk.FailOnce(diskCalls[f.n%len(diskCalls)]) }},
	{"disk errors", 3, func(w *world, f fault) {
		rng, disk := random(uint64(f.n), 7), w.replica(f).disk
		disk.SetFault(func(string, string) bool { return rng.IntN(8) == 0 })
		time.AfterFunc(f.last, func() { disk.SetFault(nil) })
	}},
	{"disk full", 4, func(w *world, f fault) {
		disk := w.replica(f).disk
		disk.Fill(int64(f.n % 4000))
		time.AfterFunc(f.last, func() { disk.Fill(-1) })
	}},
	{"cut", 10, func(w *world, f fault) { w.network.cut(f.store, w.link(f)) }},
	{"response lost", 14, func(w *world, f fault) { w.network.set(f.store, w.link(f), func(l *link) { l.cutReply = 1 + f.n%3 }) }},
	{"half of a request lost", 8, func(w *world, f fault) { w.network.set(f.store, w.link(f), func(l *link) { l.cutInside = 1 + f.n%2 }) }},
	{"slow", 6, func(w *world, f fault) {
		w.network.set(f.store, w.link(f), func(l *link) { l.slow, l.delay = time.Now().Add(f.last), time.Duration(f.n%20_000)*time.Millisecond })
	}},
	{"half-open", 6, func(w *world, f fault) {
		w.network.set(f.store, w.link(f), func(l *link) { l.stalled, l.oneWay = time.Now().Add(f.last), f.n%2 == 0 })
	}},
	{"down", 6, func(w *world, f fault) {
		w.network.set(f.store, w.link(f), func(l *link) { l.down = time.Now().Add(f.last) })
		w.network.cut(f.store, w.link(f))
	}},
	{"acknowledgement of an INSERT lost", 5, func(w *world, f fault) { w.archive.LoseNext(1 + f.n%3) }},
	{"INSERT interrupted between parts", 5, func(w *world, f fault) { w.archive.TearNext(1 + f.n%3) }},
	{"deduplication window is short", 5, func(w *world, f fault) { // other writers need it
		w.archive.LoseNext(f.n % 3)
		for at := time.Duration(0); at < f.last; at += 100 * time.Millisecond {
			time.AfterFunc(at, w.archive.ForgetTokens)
		}
	}},
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
		_ = w.broker.MoveTopicPartition(w.topic(f), int32(f.n%partitions), int32(f.n/partitions%brokers))
	}},
	{"broker rejects", 8, func(w *world, f fault) {
		w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.topic(f), Err: rejections[f.n%len(rejections)], Count: 1 + f.n/8%3})
	}},
	{"topic recreated", 2, func(w *world, f fault) {
		w.network.set(broker, everyReplica, func(l *link) { l.down = time.Now().Add(time.Hour) })
		w.network.cut(broker, everyReplica)
		time.Sleep(time.Second) // requests that have arrived are done
		w.former = append(w.former, w.records()...)
		w.topics++
		if err := w.broker.DeleteTopic(topic); err != nil {
			w.fault("cannot delete the topic: %v", err)
		}
		if err := w.broker.CreateTopic(topic, partitions, nil); err != nil {
			w.fault("cannot create the topic: %v", err)
		}
		w.network.set(broker, everyReplica, func(l *link) { l.down = time.Time{} })
	}},
	{"clock jumps", 6, func(w *world, f fault) {
		jump := time.Duration(f.n%1200-600) * time.Second
		r := w.replica(f)
		r.setSkew(jump)
		time.AfterFunc(f.last, func() { r.setSkew(0) })
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

func (r *replica) setSkew(d time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.skew = d
}

// replica returns the replica that a fault affects.
func (w *world) replica(f fault) *replica { return w.replicas[f.n>>24%len(w.replicas)] }

// link returns the replica whose link a fault affects, or everyReplica.
func (w *world) link(f fault) int {
	if f.n>>20%4 == 0 {
		return everyReplica
	}
	return w.replica(f).id
}

// restart kills the daemon and starts it again after a while.
func (w *world) restart(f fault, what string, n int, powerLost bool) {
	w.replica(f).end(what, n, powerLost)
	if f.n/64%4 == 0 { // the daemon was down for longer than the window
		w.archive.ForgetTokens()
	}
	w.startAgain(f)
}

func (w *world) startAgain(f fault) {
	time.Sleep(f.last / 4)
	var err error
	for range 30 {
		if err = w.replica(f).start(); err == nil {
			return
		}
		w.trace.add("daemon does not start: %v", err)
		w.replica(f).newLife(w.replica(f).disk.Crash(false))
		time.Sleep(time.Second)
	}
	w.giveUp("the daemon does not start after %s: %v", f, err)
}

// sharedKinds are the faults of a log in Kafka.
var sharedKinds = []kind{
	{"coordinator rejects", 8, func(w *world, f fault) {
		keys := []kmsg.Key{kmsg.OffsetCommit, kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch}
		w.broker.Fault(kfake.Fault{Keys: keys[f.n%len(keys):][:1], Err: coordination[f.n/8%len(coordination)], Count: 1 + f.n/64%3})
	}},
	{"replica without brokers", 8, func(w *world, f fault) { // another one takes its partitions over
		w.network.set(broker, w.replica(f).id, func(l *link) { l.stalled, l.oneWay = time.Now().Add(f.last), f.n%3 == 0 })
	}},
}

var coordination = []*kerr.Error{
	kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RebalanceInProgress, kerr.UnknownMemberID,
	kerr.IllegalGeneration,
}

// topic returns the topic that a fault affects.
func (w *world) topic(f fault) string {
	if w.shared && f.n>>16%2 == 0 {
		return logTopic
	}
	return topic
}

// kindsOf returns the faults of the world of a seed.
func kindsOf(seed uint64) []kind {
	if sharesLog(seed) {
		return slices.Concat(kinds, sharedKinds)
	}
	return kinds
}

// schedule returns the faults of a run, in order.
func schedule(seed uint64, length time.Duration) (faults []fault) {
	rng := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, k := range kindsOf(seed) {
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
		for _, k := range kindsOf(seed) {
			if pick -= k.weight; pick < 0 {
				f.kind = k.name
				break
			}
		}
		faults = append(faults, f)
	}
}

func (w *world) apply(f fault) {
	w.trace.add("fault %s", f)
	for _, k := range slices.Concat(kinds, sharedKinds) {
		if k.name == f.kind {
			k.apply(w, f)
		}
	}
}
