package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdvertised(t *testing.T) {
	f := func(advertised []string, want ...string) {
		t.Helper()
		a := &apache{cfg: Config{Brokers: 2, Ports: []int{9001, 9002}, Advertised: advertised}, controllers: []int{9003, 9004}}
		for i, w := range want {
			p := a.network(i + 1)
			require.Equal(t, "PLAINTEXT://"+w, p["advertised.listeners"])
			require.Contains(t, p["listeners"], []string{"127.0.0.1:9001", "127.0.0.1:9002"}[i])
		}
	}
	f(nil, "127.0.0.1:9001", "127.0.0.1:9002")
	f([]string{"127.0.0.1:7001", "127.0.0.1:7002"}, "127.0.0.1:7001", "127.0.0.1:7002")
}

func TestAdvertisedBounds(t *testing.T) {
	c := Config{Kind: KindApache, Brokers: 2, Partitions: 1, Advertised: []string{"127.0.0.1:7001"}}
	require.ErrorContains(t, c.validate(), "cannot advertise 1 addresses for 2 brokers")
	c.Advertised = append(c.Advertised, "127.0.0.1:7002")
	require.NoError(t, c.validate())
	c.Kind = KindFake
	require.ErrorContains(t, c.validate(), "cannot advertise another address with kfake")
}
