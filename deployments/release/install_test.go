package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManPages checks that man finds no error in the pages, and that they have the text of --help.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	output(t, "dpkg-deb", "--extract", packageOf(testVersion, "amd64"), dir)
	for name, want := range map[string]string{
		"trafficd": "--check-config=deep also connects to ClickHouse", "trafficctl": "trafficctl key new --name acme", "forecaster": "--horizon",
		"feeder": "feeder [flags]",
	} {
		page := filepath.Join(dir, "usr/share/man/man1", name+".1.gz")
		cmd := exec.CommandContext(t.Context(), "man", "--warnings", "--encoding=UTF-8", "--local-file", page)
		cmd.Env = append(os.Environ(), "MANWIDTH=120", "LC_ALL=C.UTF-8", "MAN_KEEP_FORMATTING=", "MANROFFOPT=-c")
		var problems strings.Builder
		cmd.Stderr = &problems
		text, err := cmd.Output()
		require.NoError(t, err, "%s", problems.String())
		require.Empty(t, problems.String(), name)
		require.Contains(t, string(text), name+" - ")
		require.Contains(t, string(text), want)
	}
}

// TestMemoryLimits checks that the programs have the same limits in all installations.
func TestMemoryLimits(t *testing.T) {
	read := func(path, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, "deployments", path))
		require.NoError(t, err)
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		require.NotNil(t, found, "%s: %s", path, pattern)
		return strings.ToUpper(strings.TrimSuffix(found[1], "i"))
	}
	for _, name := range programs {
		if name == "trafficctl" {
			continue
		}
		limit := read("systemd/"+name+".service", `\nMemoryMax=(\w+)\n`)
		section, compose := `(?s)\n`+name+`:\n.*?`, name+".yaml"
		if name == "trafficd" {
			section, compose = "", "compose.yaml"
		}
		require.Equal(t, limit, read("kubernetes/trafficd/values.yaml", section+`limits: \{memory: (\w+)\}`), name)
		require.Equal(t, limit, read("compose/"+compose, `(?s)\n  `+name+`:\n.*?mem_limit: (\w+)`), name)
	}
}

// TestPackageInstalls installs, upgrades, downgrades and removes the package on a Debian system
// that is an overlay of this one and is discarded afterwards. The steps and their checks are in
// testdata/install.sh.
func TestPackageInstalls(t *testing.T) {
	const newer = "1.0.0"
	r := *built // a package of another version with the same programs
	r.version, r.out = newer, t.TempDir()
	require.NoError(t, r.writePackages())
	script, err := filepath.Abs("testdata/install.sh")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"bash", script, "outside", packageOf(testVersion, runtime.GOARCH), filepath.Join(r.out, "trafficd_"+newer+"_"+runtime.GOARCH+".deb"),
		freeAddress(t), freeAddress(t), freeAddress(t))
	if os.Geteuid() != 0 {
		cmd.Args = append([]string{"sudo", "-n"}, cmd.Args...)
		cmd.Path, err = exec.LookPath("sudo")
		require.NoError(t, err, "installing a package needs root")
	}
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "\ninstall.sh: passed\n")
}

// TestPackageIsClean checks that lintian, Debian's checker of packages, reports nothing except
// what deployments/debian/lintian-overrides allows.
func TestPackageIsClean(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0",
		packageOf(testVersion, "amd64")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestPackageContents checks that the package has the files that the documents name, and that other
// users must not be able to write any of them.
func TestPackageContents(t *testing.T) {
	for _, arch := range architectures {
		list := output(t, "dpkg-deb", "--contents", packageOf(testVersion, arch))
		for _, path := range []string{
			"./usr/bin/trafficd", "./usr/bin/trafficctl", "./lib/systemd/system/trafficd.service", "./etc/trafficd/trafficd.yaml",
			"./etc/trafficd/forecaster.yaml", "./usr/share/man/man1/trafficd.1.gz", "./usr/share/man/man1/trafficctl.1.gz",
			"./usr/share/man/man1/forecaster.1.gz", "./usr/share/man/man1/feeder.1.gz", "./usr/bin/forecaster", "./lib/systemd/system/forecaster.service", "./usr/bin/feeder", "./lib/systemd/system/feeder.service",
			"./lib/systemd/system/route-follow.service", "./usr/share/doc/trafficd/routing.md",
			"./usr/share/doc/trafficd/README.md", "./usr/share/doc/trafficd/changelog.gz", "./usr/share/doc/trafficd/contract.md", "./usr/share/doc/trafficd/copyright",
			"./usr/share/doc/trafficd/runbook.md", "./usr/share/doc/trafficd/settings.yaml", "./usr/share/doc/trafficd/edge/haproxy.cfg",
			"./usr/share/doc/trafficd/observability/prometheus/alerts.yml", "./usr/share/doc/trafficd/observability/grafana/trafficd-overview.json",
		} {
			require.Contains(t, list, " "+path+"\n")
		}
		for line := range strings.Lines(list) {
			require.Regexp(t, `^.{8}[^w]. root/root `, line)
		}
	}
}

// TestDocumentLinks checks that the relative links of the documents in the archives and packages
// lead to files in them.
func TestDocumentLinks(t *testing.T) {
	relative := regexp.MustCompile(`\]\(([^()#:]+)[)#]`)
	f := func(extract string, args ...string) {
		t.Helper()
		dir := t.TempDir()
		output(t, extract, append(args, dir)...)
		checked := 0
		require.NoError(t, filepath.WalkDir(dir, func(file string, _ os.DirEntry, err error) error {
			if filepath.Ext(file) != ".md" {
				return err
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, found := range relative.FindAllStringSubmatch(string(text), -1) {
				_, err := os.Stat(filepath.Join(filepath.Dir(file), found[1]))
				require.NoError(t, err, file)
				checked++
			}
			return nil
		}))
		require.NotZero(t, checked)
	}
	f("dpkg-deb", "--extract", packageOf(testVersion, "amd64"))
	f("tar", "-xf", filepath.Join(built.out, "trafficd-"+testVersion+"-linux-amd64.tar.gz"), "-C")
}

// TestUnitExposure checks the sandbox of the units, which is the same. testdata/install.sh verifies
// the units themselves, which needs the installed programs.
func TestUnitExposure(t *testing.T) {
	var sandboxes []string
	for _, name := range []string{"trafficd", "forecaster", "feeder", "route-follow"} {
		unit := root + "/deployments/systemd/" + name + ".service"
		output(t, "systemd-analyze", "security", "--offline=yes", "--threshold=15", "--no-pager", unit)
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		require.NotContains(t, string(text), "\nProcSubset=", "TrafficdRestarts needs process_start_time_seconds, which is computed from /proc/stat")
		_, sandbox, found := strings.Cut(string(text), "\nCapabilityBoundingSet=")
		require.True(t, found)
		sandboxes = append(sandboxes, sandbox)
	}
	unit, err := os.ReadFile(root + "/deployments/systemd/trafficd.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "\nWatchdogSec=")
	for _, sandbox := range sandboxes {
		require.Equal(t, sandboxes[0], sandbox)
	}
}
