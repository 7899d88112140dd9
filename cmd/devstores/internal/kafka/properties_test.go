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

func TestNodeBounds(t *testing.T) {
	good := Config{Kind: KindApache, Brokers: 3, Partitions: 1, Node: 2, Ports: []int{1, 2, 3}, Controllers: []int{4, 5, 6}}
	require.NoError(t, good.validate())
	require.Equal(t, []int{2}, good.nodes())
	require.Equal(t, []int{1, 2, 3}, Config{Brokers: 3}.nodes())
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := good
		change(&c)
		require.ErrorContains(t, c.validate(), want)
	}
	f("node 4 of 3", func(c *Config) { c.Node = 4 })
	f("node -1 of 3", func(c *Config) { c.Node = -1 })
	f("of the broker apache", func(c *Config) { c.Kind = KindFake })
	f("without the others' ports", func(c *Config) { c.Ports = []int{1, 2} })
	f("without the others' ports", func(c *Config) { c.Ports = []int{0, 2, 3} })
	f("without the others' ports", func(c *Config) { c.Controllers = nil })
}
