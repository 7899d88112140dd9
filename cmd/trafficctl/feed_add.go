package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	feeder "trafficd/cmd/feeder/config"
	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficctl/internal/keyfile"
	"trafficd/cmd/trafficctl/internal/yamlfile"
	daemon "trafficd/cmd/trafficd/config"
	"trafficd/pipeline/lib/replace"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/feeds"
	"trafficd/sources/api"
	"trafficd/sources/registry"
)

const feedAddHelp = `Show what a publication contains, as trafficctl feed check does, and configure the feeder,
which then pulls it, and the daemon, which gets its measurements. In --dir, this writes:

  feeder.yaml    the feed
  feeder.key     the feeder's API key, in the keys file of the daemon, too
  trafficd.yaml  the feeder's list of sites, as the detectors of the product instance

Files that exist are extended: comments and other settings are kept, and nothing that
exists is changed. If a name or the product instance is already used for something else,
the command fails, and nothing is written. It may be repeated.

Without a trafficd.yaml in --dir, it writes one for a trial, with all data in --dir and
without stores: the daemon validates measurements and discards them.`

const feedAddExamples = `  trafficctl feed add https://opendata.ndw.nu/trafficspeed.xml.gz \
      --sites https://opendata.ndw.nu/measurement_current.xml.gz --product-instance nl
  trafficd --config trafficd.yaml &
  feeder --config feeder.yaml

  # with the Debian package
  trafficctl feed add https://example.org/speeds.xml --product-instance fr --dir /etc/trafficd
  systemctl reload trafficd && systemctl restart feeder`

// addition is a feed that is added to the files of a feeder and a daemon.
type addition struct {
	publication
	instance, dir, feederURL string

	mount  string // where the programs have dir
	feeder *feeder.Config
	daemon *daemon.Config
	trial  bool // there is no configuration of the daemon yet
	new    bool // there is no configuration of the feeder yet

	keyFile, keysFile string
	key               string
	add               struct{ key, feed, list bool } // what is missing
}

func newFeedAdd(std streams) *cobra.Command {
	a := &addition{}
	cmd := newFeedCommand(&a.publication, "add URL", "Configure a feeder and a daemon for a publication", feedAddExamples,
		func(ctx context.Context, _ *publication, url string) error { return a.run(ctx, std, url) })
	cmd.Long = "Configure a feeder and a daemon for a publication.\n\n" + feedAddHelp
	f := cmd.Flags()
	f.StringVar(&a.instance, "product-instance", "", "product instance of the measurements: your name for a set of detectors (required)")
	f.StringVar(&a.Name, "name", "", "name of the feed in metrics and messages (default the product instance)")
	f.StringVar(&a.dir, "dir", ".", "`directory` of feeder.yaml and trafficd.yaml")
	f.StringVar(&a.feederURL, "feeder-url", "", "`URL` at which the daemon reaches the feeder (default that of ops.listen on this machine)")
	f.DurationVar(&a.Every, "every", 0, "time between pulls: half of the time between publications (default 30s)")
	_ = cmd.MarkFlagRequired("product-instance")
	return cmd
}

func (a *addition) run(ctx context.Context, std streams, url string) error {
	if !settings.IsURL(url) || a.Sites != "" && !settings.IsURL(a.Sites) {
		return errors.New("the publication and --sites must be http or https URLs; trafficctl feed check and send read files")
	}
	c, err := a.check(ctx, std, url)
	if err != nil {
		return err
	}
	switch {
	case c.Of(feeds.Measured) == 0:
		return errors.New("nothing was written: the publication contains no measurement")
	case c.noLength > 0:
		return errors.New("nothing was written: --period is missing")
	}
	a.URL, a.Format = url, c.Name
	if a.rows != "" {
		a.Rows = c.Mapping
	}
	for _, path := range []*string{&a.BodyFile, &a.Cert, &a.Key, &a.CA} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if a.Name == "" {
		a.Name = strings.Trim(regexp.MustCompile(`[^a-z0-9_-]+`).ReplaceAllString(strings.ToLower(a.instance), "-"), "-")
	}
	if a.dir, err = filepath.Abs(a.dir); err == nil {
		err = a.plan()
	}
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	for _, dry := range []bool{true, false} { // all errors of the first file come before any is written
		if err := a.write(dry); err != nil {
			return err
		}
	}
	a.report(std.out, c)
	return nil
}

func (a *addition) path(name string) string { return filepath.Join(a.dir, name) }

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// findMount finds out where the programs have dir: in a container, it has another path, as the
// setting of a file in it shows.
func (a *addition) findMount() {
	a.mount = a.dir
	if keys := a.daemon.API.KeysFile; keys != "" && !exists(keys) && exists(a.path(filepath.Base(keys))) {
		a.mount = filepath.Dir(keys)
	}
}

// here returns the path of a file in a setting, on this machine.
func (a *addition) here(path string) string {
	if name, err := filepath.Rel(a.mount, path); err == nil && filepath.IsLocal(name) {
		return a.path(name)
	}
	return path
}

// plan reads the files, and finds out what is missing and whether it can be added.
func (a *addition) plan() error {
	load := func(name string) (o conf.Options) {
		if exists(a.path(name)) {
			o.File = a.path(name)
		}
		return o
	}
	a.trial, a.new = !exists(a.path("trafficd.yaml")), !exists(a.path("feeder.yaml"))
	a.feeder, _, _ = feeder.Load(load("feeder.yaml")) // the result is checked before it is written
	a.daemon, _, _ = daemon.Load(load("trafficd.yaml"))
	a.findMount()
	return errors.Join(a.planFeed(), a.planList(), a.planKey())
}

// planFeed returns an error if the name of the feed is that of another one.
func (a *addition) planFeed() error {
	i := slices.IndexFunc(a.feeder.Feeds, func(f authority.Feed) bool { return f.Name == a.Name })
	if a.add.feed = i < 0; a.add.feed {
		return nil
	}
	exists, wanted := reflect.ValueOf(a.feeder.Feeds[i]), reflect.ValueOf(a.Feed)
	for i := range wanted.NumField() { // other settings may have been added by hand
		if w := wanted.Field(i); !w.IsZero() && !reflect.DeepEqual(w.Interface(), exists.Field(i).Interface()) {
			return fmt.Errorf("the feed %q exists in %s, but with another %s; choose another --name, or edit the file",
				a.Name, a.path("feeder.yaml"), wanted.Type().Field(i).Tag.Get("setting"))
		}
	}
	return nil
}

// listURL returns the address of the feeder's list of sites.
func (a *addition) listURL() string {
	return strings.TrimSuffix(cmp.Or(a.feederURL, local(a.feeder.Ops.Listen)), "/") + "/sites"
}

// local returns the URL at which programs on this machine reach a listener, whose address is
// checked before it is written.
func local(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// planList returns an error if the product instance has another list of detectors.
func (a *addition) planList() error {
	a.add.list = true
	for _, f := range a.daemon.Registry.Feeds {
		switch {
		case f.ProductInstance != a.instance:
		case f.HTTP != nil && f.HTTP.URL == a.listURL():
			a.add.list = false
		default:
			return fmt.Errorf("registry.feeds in %s has another list of detectors for the product instance %q, and each may have one; "+
				"choose another --product-instance, or replace that entry by the list at %s", a.path("trafficd.yaml"), a.instance, a.listURL())
		}
	}
	return nil
}

// planKey finds or creates the API key of the feeder, and returns an error if it cannot be used.
func (a *addition) planKey() error {
	const name = "feeder"
	a.keyFile = a.here(cmp.Or(a.feeder.Trafficd.KeyFile, a.path("feeder.key")))
	a.keysFile = a.here(cmp.Or(a.daemon.API.KeysFile, a.path("keys.yaml")))
	var err error
	if a.key, err = client.ReadKey("trafficd.key_file", a.keyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries := a.daemon.API.Keys
	if exists(a.keysFile) {
		more, err := keyfile.Read(a.keysFile)
		if err != nil {
			return err
		}
		entries = slices.Concat(entries, more)
	}
	for _, e := range entries {
		switch {
		case a.key != "" && strings.EqualFold(e.SHA256, keyfile.Digest(a.key)):
			if e.ProductInstance != a.instance || !slices.Contains(e.Rights, "ingest") {
				return fmt.Errorf("the feeder's key %q is for the product instance %q with the rights %v; a feeder sends to one product instance: "+
					"configure another one for this feed, with a spool and an ops.listen of its own", e.Name, e.ProductInstance, e.Rights)
			}
			return nil
		case a.key == "" && e.Name == name:
			return fmt.Errorf("%s has a key named %q, but there is no %s; restore the file, or revoke that key with "+
				"trafficctl key revoke %[2]s --file %[1]s", a.keysFile, name, a.keyFile)
		}
	}
	a.add.key = true
	return nil
}

// write writes the files. If dry, it only checks whether it can.
func (a *addition) write(dry bool) error {
	if a.add.key && !dry {
		if err := a.writeKey(); err != nil {
			return err
		}
	}
	if a.add.list || a.daemon.API.KeysFile == "" {
		err := a.edit(dry, "trafficd.yaml", a.addList, func(o conf.Options) error {
			_, _, err := daemon.Load(o)
			if !conf.Concern(err, "registry") && !conf.Concern(err, "api") { // others may be in the environment
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if a.add.feed || a.feeder.Trafficd.KeyFile == "" {
		return a.edit(dry, "feeder.yaml", a.addFeed, func(o conf.Options) error {
			_, _, err := feeder.Load(o)
			return err
		})
	}
	return nil
}

var errDry = errors.New("not written")

// edit changes a file if load accepts the result.
func (a *addition) edit(dry bool, name string, change func(*yaml.Node) error, load func(conf.Options) error) error {
	path := a.path(name)
	existed := exists(path)
	err := yamlfile.Edit(path, change, func(text []byte) error {
		file, err := os.CreateTemp("", name)
		if err != nil {
			return err
		}
		defer os.Remove(file.Name())
		_, err = file.Write(text)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		if err := load(conf.Options{File: file.Name()}); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), file.Name(), path))
		}
		if dry {
			return errDry
		}
		return nil
	})
	if errors.Is(err, errDry) {
		return nil
	}
	if err == nil && !existed {
		err = a.own(path)
	}
	if err != nil {
		return fmt.Errorf("cannot extend %s: %w", path, err)
	}
	return nil
}

// own gives a new file the mode and the owner of the daemon's configuration if the programs run as
// another user: that of the package, or that of a container.
func (a *addition) own(path string) error {
	info, err := os.Stat(a.path("trafficd.yaml"))
	root := os.Geteuid() == 0
	if err != nil || !root && a.mount == a.dir {
		return nil //nolint:nilerr // it is created after the key, with the same owner
	}
	err = os.Chmod(path, info.Mode().Perm())
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && root {
		err = errors.Join(err, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
	return err
}

// writeKey writes the key file before the keys file: if it is interrupted, the next run continues.
func (a *addition) writeKey() error {
	if a.key == "" {
		a.key = keyfile.NewKey()
		err := replace.File(a.keyFile, 0o600, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, a.key)
			return err
		})
		if err = errors.Join(err, a.own(a.keyFile)); err != nil {
			return fmt.Errorf("cannot write the API key: %w", err)
		}
	}
	existed := exists(a.keysFile)
	err := keyfile.Append(a.keysFile, api.KeyEntry{
		Name: "feeder", SHA256: keyfile.Digest(a.key), ProductInstance: a.instance, Rights: []string{"ingest"}, Timezone: "UTC",
	})
	if err == nil && !existed {
		err = a.own(a.keysFile)
	}
	return err
}

// listEvery is how often the daemon reads the feeder's list of sites: new sites wait for it. Unless
// the list has changed, it costs a header.
const listEvery = 10 * time.Second

// addList adds the list of sites to the daemon's configuration.
func (a *addition) addList(root *yaml.Node) error {
	err := yamlfile.SetDefault(root, a.keysFile, "api", "keys_file")
	if a.trial {
		root.Content[0].HeadComment = "A trial without stores: trafficd validates measurements and discards them. Before you use it,\n" +
			"set clickhouse and kafka; trafficd --print-config prints every setting."
		err = errors.Join(err, yamlfile.SetDefault(root, a.path("journal"), "journal", "dir"),
			yamlfile.SetDefault(root, false, "clickhouse", "enabled"), yamlfile.SetDefault(root, false, "kafka", "enabled"))
	}
	if err != nil || !a.add.list {
		return err
	}
	list := registry.FeedConfig{ProductInstance: a.instance, HTTP: &registry.HTTPConfig{URL: a.listURL(), Interval: listEvery}}
	return appendTo(root, conf.Entry(list), "registry", "feeds")
}

// addFeed adds the feed to the feeder's configuration.
func (a *addition) addFeed(root *yaml.Node) error {
	err := yamlfile.SetDefault(root, strings.Replace(a.keyFile, a.dir, a.mount, 1), "trafficd", "key_file")
	if a.new {
		err = errors.Join(err, yamlfile.SetDefault(root, local(a.daemon.API.Listen), "trafficd", "url"))
	}
	if a.trial && a.new {
		err = errors.Join(err, yamlfile.SetDefault(root, a.path("spool"), "spool", "dir"))
	}
	if err != nil || !a.add.feed {
		return err
	}
	return appendTo(root, conf.Entry(a.Feed), "feeds")
}

func appendTo(root, entry *yaml.Node, keys ...string) error {
	list, err := yamlfile.List(root, keys...)
	if err == nil {
		list.Content = append(list.Content, entry)
	}
	return err
}

// report writes what was written, and what to do next.
func (a *addition) report(w io.Writer, c *findings) {
	state := map[bool]string{true: "added to", false: "is already in"}
	fmt.Fprintf(w, "\nfeed %s %s %s\n", a.Name, state[a.add.feed], a.path("feeder.yaml"))
	fmt.Fprintf(w, "detectors of %s %s %s\n", a.instance, state[a.add.list], a.path("trafficd.yaml"))
	fmt.Fprintf(w, "key of the feeder %s %s and %s\n", state[a.add.key], a.keysFile, a.keyFile)
	if a.trial {
		fmt.Fprintln(w, "trafficd.yaml is for a trial: the daemon has no stores, and discards what it accepts")
	}
	allows := a.daemon.Pipeline.Validate.Allows()
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(c.codes)), allows)
	if len(unknown) > 0 {
		fmt.Fprintf(w, "warning: pipeline.validate.measure_types in trafficd.yaml lacks %s of these codes, such as %s: the daemon rejects them; "+
			"add entries such as {code: \"speed*\"}\n", grouped(len(unknown)), unknown[0])
	}
	fmt.Fprintf(w, "\nnext, unless they run:\n  trafficd --config %s\n  feeder --config %s\n", a.path("trafficd.yaml"), a.path("feeder.yaml"))
	fmt.Fprintln(w, "those that run: SIGHUP makes trafficd read its configuration again (systemctl reload trafficd); restart the feeder")
}
