package kafka

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kfake"
)

const fakeModule = "github.com/twmb/franz-go/pkg/kfake"

// startFake runs kfake in this process. Every write is synced, so records survive a kill; sequence numbers do not.
func startFake(cfg Config) (*Server, error) {
	log, err := os.OpenFile(filepath.Join(cfg.Dir, "kfake.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open kfake's log: %w", err)
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(cfg.Ports...),
		kfake.DataDir(filepath.Join(cfg.Dir, "data")),
		kfake.SyncWrites(),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.BrokerConfigs(cfg.Properties),
		kfake.WithLogger(kfake.BasicLogger(log, kfake.LogLevelWarn)),
	)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("cannot start kfake in %s: %w", cfg.Dir, err)
	}
	stop := func() error {
		cluster.Close()
		return log.Close()
	}
	info := Info{Brokers: addresses(cfg.Ports), Kind: KindFake, Version: fakeVersion(), PIDs: []int{os.Getpid()}}
	return &Server{Info: info, stop: stop}, nil
}

// fakeVersion is the version of kfake that this program was built with.
func fakeVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == fakeModule {
				return module.Version
			}
		}
	}
	return "unknown"
}
