package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Network is a bridge with a network namespace for each host. The link between any two hosts can be
// cut, in one direction or both. As with a broken switch, its packets disappear without an error.
type Network struct {
	Hosts  launch.Hosts
	bridge string
}

const unusedMAC = "02:00:00:00:00:01"

// newNetwork creates the namespaces, which needs root and iproute2.
func newNetwork(hosts int) (n *Network, err error) {
	defer must.Return(&err)
	removeDeadNetworks()
	n = &Network{bridge: networkPrefix + fmt.Sprint(os.Getpid())}
	subnet := fmt.Sprintf("10.%d.%d.", 64+rand.IntN(128), rand.IntN(256))
	must.Do(ip("link", "add", n.bridge, "type", "bridge"))
	must.Do(ip("addr", "add", subnet+"254/24", "dev", n.bridge))
	must.Do(ip("link", "set", n.bridge, "up"))
	for i := range hosts {
		in, address := fmt.Sprintf("%s-%d", n.bridge, i), fmt.Sprint(subnet, i+1)
		must.Do(ip("netns", "add", in))
		n.Hosts = append(n.Hosts, launch.Host{Address: address, Namespace: in})
		must.Do(ip("link", "add", vethOf(in), "type", "veth", "peer", "name", hostInterface, "netns", in))
		must.Do(ip("link", "set", vethOf(in), "master", n.bridge, "up"))
		must.Do(ip("-n", in, "link", "set", "lo", "up"))
		must.Do(ip("-n", in, "addr", "add", address+"/24", "dev", hostInterface))
		must.Do(ip("-n", in, "link", "set", hostInterface, "up"))
	}
	return n, nil
}

const (
	hostInterface = "e0" // a host's network interface
	networkPrefix = "chaos"
)

// Cut drops all packets from one host to another until Join.
func (n *Network) Cut(from, to int) error {
	return ip("-n", n.Hosts[from].Namespace, "neigh", "replace", n.Hosts[to].Address, "dev", hostInterface, "lladdr", unusedMAC,
		"nud", "permanent")
}

// Join undoes Cut.
func (n *Network) Join(from, to int) error {
	return ip("-n", n.Hosts[from].Namespace, "neigh", "del", n.Hosts[to].Address, "dev", hostInterface)
}

// close removes the namespaces. Processes in them must have been stopped.
func (n *Network) close() {
	for _, h := range n.Hosts {
		removeHost(h.Namespace)
	}
	_ = ip("link", "del", n.bridge)
}

// removeDeadNetworks removes the networks that killed processes left behind.
func removeDeadNetworks() {
	list, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(list)) {
		var pid, host int
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _ := fmt.Sscanf(name, networkPrefix+"%d-%d", &pid, &host); n == 2 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			removeHost(name)
			_ = ip("link", "del", networkPrefix+fmt.Sprint(pid))
		}
	}
}

// removeHost removes a namespace and its link. It removes the link explicitly, because the kernel
// would do so only some time after it removed the namespace.
func removeHost(namespace string) {
	_, _ = ip("link", "del", vethOf(namespace)), ip("netns", "del", namespace)
}

// vethOf returns the name of a host's link on the bridge, which may have at most 15 bytes.
func vethOf(namespace string) string { return namespace[len("cha"):] }

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
