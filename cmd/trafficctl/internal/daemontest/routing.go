package daemontest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
	"trafficd/sources/api"
	"trafficd/sources/routing"
)

// OtherKey is an API key of another client of the routing service, and
// NoRightKey one that may not use it.
const (
	OtherKey   = "tfd_other"
	NoRightKey = "tfd_no_right"
)

// Routing starts the daemon's own routing service, behind its own HTTP server,
// until the test's end. It gives the base URL. change may be nil.
func Routing(t testing.TB, change func(*routing.Config)) string {
	t.Helper()
	cfg := routing.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	front := api.DefaultConfig()
	front.Listen, front.BasePath, front.DrainGrace = "127.0.0.1:0", "/base", 0
	front.Keys = []api.KeyEntry{entry(Key, "routing"), entry(OtherKey, "routing"), entry(NoRightKey, "ingest")}
	keys, err := api.OpenKeyring(front, zerolog.Nop())
	require.NoError(t, err)
	service := routing.New(cfg, "http", zerolog.Nop())
	server, err := api.New(front, keys, []api.Route{{
		Path: routing.Path, Methods: []string{"POST"}, Right: contract.RightRouting, Endpoint: service,
	}}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		service.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
		service.Stop()
		keys.Close()
	})
	return "http://" + server.Addr().String() + front.BasePath
}

func entry(key, right string) api.KeyEntry {
	digest := sha256.Sum256([]byte(key))
	return api.KeyEntry{Name: key, SHA256: hex.EncodeToString(digest[:]), ProductInstance: "city", Rights: []string{right}}
}
