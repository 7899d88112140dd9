package clickhouse

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// defaultRegistry is the default of npm's setting "registry". Mirrors may return tarball URLs that
// still begin with it; find replaces that prefix with the mirror's URL, as npm does.
const defaultRegistry = "https://registry.npmjs.org/"

// npmConfig holds npm's settings. Environment variables override the .npmrc files of the project,
// the user and the machine, in this order. Only the registry and its credentials are used; proxies
// and certificates are configured as for other Go programs.
type npmConfig map[string]string

func readNPMConfig(environ []string) (npmConfig, error) {
	env := npmConfig{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if len(name) < len("npm_config_") || !strings.EqualFold(name[:len("npm_config_")], "npm_config_") || value == "" {
			continue
		}
		key := name[len("npm_config_"):]
		if !strings.HasPrefix(key, "//") && key != "" { // registry-scoped keys are case-sensitive and may contain underscores
			key = strings.ToLower(key[:1] + strings.ReplaceAll(key[1:], "_", "-"))
		}
		env[key] = value
	}
	files := []string{"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"} // used by distributions and by Node.js itself
	if file := env["globalconfig"]; file != "" {
		files = []string{file}
	}
	if file := env["userconfig"]; file != "" {
		files = append(files, file)
	} else if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	if root, err := launch.ModuleRoot(); err == nil {
		files = append(files, filepath.Join(root, ".npmrc"))
	}
	c := npmConfig{}
	for _, file := range files {
		if err := c.readFile(file); err != nil {
			return nil, fmt.Errorf("cannot read npm's configuration: %w", err)
		}
	}
	maps.Copy(c, env)
	return c, nil
}

var npmVariable = regexp.MustCompile(`\$\{([^}?]+)\??\}`)

// readFile adds the settings of an .npmrc file. A missing file is not an error.
func (c npmConfig) readFile(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	expand := func(s string) string { // like npm, it leaves references to unset variables unchanged
		return npmVariable.ReplaceAllStringFunc(s, func(name string) string {
			if value, ok := os.LookupEnv(npmVariable.FindStringSubmatch(name)[1]); ok {
				return value
			}
			return name
		})
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(line, ";") && !strings.HasPrefix(line, "#") {
			c[expand(strings.TrimSpace(key))] = expand(strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}
	return nil
}

// registry returns the URL of the registry for a package, with a trailing slash.
func (c npmConfig) registry(name string) string {
	scope, _, _ := strings.Cut(name, "/")
	for _, key := range []string{scope + ":registry", "registry"} {
		if r := c[key]; r != "" && r != "null" {
			return strings.TrimSuffix(r, "/") + "/"
		}
	}
	return defaultRegistry
}

// authorization returns the value of the Authorization header for a URL, from the key with the
// longest matching path, such as //host/path/:_authToken, or an empty string if there is none.
func (c npmConfig) authorization(u *url.URL) string {
	for dir := u.Path; ; dir = path.Dir(dir) {
		prefix := "//" + u.Host + strings.TrimSuffix(dir, "/") + "/:"
		if token := c[prefix+"_authToken"]; token != "" {
			return "Bearer " + token
		}
		if auth := c[prefix+"_auth"]; auth != "" {
			return "Basic " + auth
		}
		if password, err := base64.StdEncoding.DecodeString(c[prefix+"_password"]); err == nil && len(password) > 0 {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(c[prefix+"username"]+":"+string(password)))
		}
		if dir == "/" || dir == "." || dir == "" {
			return ""
		}
	}
}

// release is a registry's description of one version of a package.
type release struct {
	Tarball   string `json:"tarball"`
	Integrity string `json:"integrity"`
}

// find requests the description of a package version from the registry.
func (c npmConfig) find(ctx context.Context, name, version string) (r release, err error) {
	defer must.Return(&err)
	registry := c.registry(name)
	resp, err := c.get(ctx, registry+strings.ReplaceAll(name, "/", "%2f"))
	must.Do(err)
	defer resp.Body.Close()
	var document struct {
		Versions map[string]struct {
			Dist release `json:"dist"`
		} `json:"versions"`
	}
	must.Do(json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&document), "cannot parse the registry's response")
	found, ok := document.Versions[version]
	if !ok {
		return r, fmt.Errorf("registry %s has no version %s of %s", registry, version, name)
	}
	if rest, ok := strings.CutPrefix(found.Dist.Tarball, defaultRegistry); ok {
		found.Dist.Tarball = registry + rest
	}
	return found.Dist, nil
}

// client limits the wait for a response's header to a minute, but not the download.
var client = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute
	return &http.Client{Transport: t}
}()

// get returns a response with status 200, whose body the caller must close, or an error.
func (c npmConfig) get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.npm.install-v1+json, */*;q=0.8") // npm's abbreviated metadata
	if a := c.authorization(req.URL); a != "" {
		req.Header.Set("Authorization", a)
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", req.URL.Redacted(), resp.Status)
	}
	return resp, err
}
