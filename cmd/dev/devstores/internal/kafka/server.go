// Package kafka runs a Kafka-protocol cluster on loopback: kfake, which starts immediately, or
// Apache Kafka, for tests of idempotence and of broker crashes.
package kafka

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kfake"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Server is a running cluster.
type Server struct {
	launch.KafkaInfo
	stop   func() error
	unlock func()
}

// Start starts a cluster in opts.Dir and returns when every broker responds and opts.Topics exist.
// failed is called if a broker exits without Stop; it should cancel ctx, so that Start does not
// wait for a process that has exited.
func Start(ctx context.Context, opts launch.Options, failed func(error)) (s *Server, err error) {
	defer must.Return(&err, "cannot create Kafka's directory")
	opts.Dir = must.Get(filepath.Abs(filepath.Join(opts.Dir, "kafka", opts.Broker))) // kfake and Apache Kafka must never share files
	must.Do(os.MkdirAll(opts.Dir, 0o755))
	lock := "lock"
	if opts.Node > 0 {
		lock = fmt.Sprint("lock-", opts.Node)
	}
	unlock, err := launch.TryLock(filepath.Join(opts.Dir, lock))
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %s (is another Kafka running in it?): %w", opts.Dir, err)
	}
	if opts.Broker == launch.Apache {
		s, err = startApache(ctx, opts, failed)
	} else {
		s, err = startFake(opts)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	s.unlock = unlock
	err = launch.AwaitBrokers(ctx, s.Brokers)
	for topic, partitions := range opts.Topics {
		if err == nil {
			err = launch.CreateTopic(ctx, s.Brokers, topic, partitions, nil)
		}
	}
	if err != nil {
		_ = s.Stop()
		return nil, fmt.Errorf("%w; see the logs in %s", err, opts.Dir)
	}
	return s, nil
}

// Stop stops the cluster cleanly.
func (s *Server) Stop() error {
	defer s.unlock()
	return s.stop()
}

const fakeModule = "github.com/twmb/franz-go/pkg/kfake"

// startFake starts kfake in this process. Every write is synced, so records survive a kill, but
// producers' sequence numbers do not.
func startFake(opts launch.Options) (*Server, error) {
	log, err := os.OpenFile(filepath.Join(opts.Dir, "kfake.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open kfake's log: %w", err)
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(opts.KafkaPorts...),
		kfake.DataDir(filepath.Join(opts.Dir, "data")),
		kfake.SyncWrites(),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(opts.Partitions),
		kfake.BrokerConfigs(opts.Properties),
		kfake.WithLogger(kfake.BasicLogger(log, kfake.LogLevelWarn)),
	)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("cannot start kfake in %s: %w", opts.Dir, err)
	}
	s := &Server{KafkaInfo: launch.KafkaInfo{Kind: launch.Kfake, Version: "unknown", Processes: []int{os.Getpid()}}}
	for _, port := range opts.KafkaPorts {
		s.Brokers = append(s.Brokers, launch.Address(port))
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == fakeModule {
				s.Version = module.Version
			}
		}
	}
	s.stop = func() error {
		cluster.Close()
		return log.Close()
	}
	return s, nil
}
