package launch

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"trafficd/cmd/dev/must"
)

// EdgeConfig returns the configuration deployments/edge/name, adapted to the addresses of replicas
// and listening on address. Only API and Ops of the replicas are used. nginx.conf and envoy.yaml
// have two replicas, haproxy.cfg any number of at least two. nginx needs a directory for its files.
func EdgeConfig(name, address, dir string, replicas ...Daemon) (text string, err error) {
	defer must.Return(&err, "cannot adapt the configuration "+name)
	text = string(must.Get(os.ReadFile(filepath.Join(must.Get(ModuleRoot()), "deployments", "edge", name))))
	at := func(address string) string { // in Envoy's configuration
		host, port, err := net.SplitHostPort(address)
		must.Do(err)
		return fmt.Sprintf("address: %s, port_value: %s}", host, port)
	}
	const last = "    server replica-2 replica-2:8080 check port 8081\n"
	more, words := last, []string{
		"bind :80\n", "bind " + address + "\n", "listen 80;", "listen " + address + ";", "address: 0.0.0.0, port_value: 80}", at(address),
	}
	for i, d := range replicas {
		name := fmt.Sprintf("replica-%d", i+1)
		if i > 1 {
			more += strings.ReplaceAll(last, "replica-2", name)
		}
		host, port, err := net.SplitHostPort(d.Ops)
		must.Do(err)
		words = append(words, name+":8080 check port 8081", fmt.Sprintf("%s check addr %s port %s", d.API, host, port), name+":8080", d.API,
			"address: "+name+", port_value: 8080}}, health_check_config: {port_value: 8081}",
			at(d.API)+"}, health_check_config: {address: {socket_address: {"+at(d.Ops)+"}}")
	}
	text = strings.NewReplacer(words...).Replace(strings.ReplaceAll(text, last, more))
	if name == "nginx.conf" {
		text = NginxConfig(dir, text)
	}
	return text, nil
}

// NginxConfig returns a configuration of nginx with the text in its context http. nginx runs in the
// foreground and keeps its files in dir.
func NginxConfig(dir, text string) string {
	return fmt.Sprintf(`daemon off; worker_processes 1; user root; pid %[1]s/pid; error_log %[1]s/error.log;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  %[2]s
}
`, dir, text)
}
