package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

const (
	root        = "../.."
	testStamp   = "0123abc of 2026-11-22"
	testVersion = "0.0.0-dev.20261122.g0123abc"
)

// built is a release that all tests read.
var built *release

func TestMain(m *testing.M) {
	os.Exit(func() int {
		slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm logs each symbolic link
		dir, err := os.MkdirTemp("", "trafficd-release-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		setKey(newSigningKey())
		if built, err = newRelease(root, dir, testStamp); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built.build)
		if err := built.make("release"); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// hostTrafficd returns the path of trafficd for this machine.
func hostTrafficd() string { return built.program(runtime.GOARCH, "trafficd") }

// output runs a program and returns what it printed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), text)
	return string(text)
}

func TestStamp(t *testing.T) {
	f := func(stamp, version string) {
		t.Helper()
		got, date, err := parseStamp(stamp)
		require.NoError(t, err)
		require.Equal(t, version, got)
		require.Equal(t, "2026-11-22", date.Format("2006-01-02"))
		require.Equal(t, strings.Contains(version, "dev."), isSnapshot(got))
	}
	f("v1.2.3 of 2026-11-22", "1.2.3")
	f("v1.2.3-rc.1 of 2026-11-22", "1.2.3-rc.1")
	f("v1.2.3-4-gdeb81a7 of 2026-11-22", "1.2.4-dev.4.gdeb81a7")
	f("v1.2.3-rc.1-4-gdeb81a7 of 2026-11-22", "1.2.3-rc.1.dev.4.gdeb81a7")
	f("v1.2.3-4-gdeb81a7+changes of 2026-11-22", "1.2.4-dev.4.gdeb81a7.changes")
	f("v1.2.3+changes of 2026-11-22", "1.2.3-dev.changes")
	f("deb81a7 of 2026-11-22", "0.0.0-dev.20261122.gdeb81a7")
	for _, stamp := range []string{"", "v1.2.3", "1.2.3 of 2026-11-22", "v1.2.3 of 2026-22-11"} {
		_, _, err := parseStamp(stamp)
		require.ErrorContains(t, err, fmt.Sprintf("%q", stamp))
	}
}

// TestReproducible verifies the release: it builds it again in another directory and environment.
func TestReproducible(t *testing.T) {
	for name, value := range map[string]string{
		"TZ": "Pacific/Auckland", "LANG": "tr_TR.UTF-8", "TMPDIR": t.TempDir(), "GOFLAGS": "-ldflags=-X=x=y", "GOAMD64": "v3", "GOARM64": "v9.0",
		"SOURCE_DATE_EPOCH": "1",
	} {
		t.Setenv(name, value)
	}
	tree := filepath.Join(t.TempDir(), "elsewhere")
	copyTree(t, tree)
	v, out := verifierOf(built.out)
	v.stamp = testStamp
	require.NoError(t, errors.Join(v.checkSignature(), v.checkSums(), v.rebuild(tree)), out)
	require.Equal(t, 10, strings.Count(out.String(), "ok: built again, bit by bit: "), out)

	other := packageOf(testVersion, "amd64")
	v.sums[filepath.Base(other)] = strings.Repeat("0", 64)
	require.ErrorContains(t, v.compare(tree), filepath.Base(other)+" was not built from the commit")
}

// copyTree copies the files that git tracks or would add, with different modes and times.
func copyTree(t *testing.T, to string) {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		path := filepath.Join(to, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(filepath.Join(root, name))
			require.NoError(t, err)
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, info.Mode()&0o100|0o600))
	}
	output(t, "cp", "-r", filepath.Join(root, ".git"), to) // the build reads the commit from it
}

func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	list := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		list[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return list
}

func TestChecksums(t *testing.T) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = built.out
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Equal(t, len(sums(t, built.out))-3, strings.Count(string(text), ": OK\n"))
	// archives 2, packages 2, images 3, chart, SBOM, changelog, attestations 2, checksums, signature 2
	require.Len(t, sums(t, built.out), 15)
}

func TestVersionInEveryArtefact(t *testing.T) {
	for _, name := range programs {
		require.Contains(t, output(t, built.program(runtime.GOARCH, name), "--version"), testStamp)
	}
	for name := range sums(t, built.out) {
		if !strings.HasPrefix(name, checksums) && name != "CHANGELOG.md" {
			require.Contains(t, strings.ReplaceAll(name, "~", "-"), testVersion)
		}
	}
	for _, arch := range architectures {
		control := output(t, "dpkg-deb", "--field", packageOf(testVersion, arch))
		require.Contains(t, control, "\nVersion: 0.0.0~dev.20261122.g0123abc\n")
		require.Contains(t, control, "\nArchitecture: "+arch+"\n")
	}
	chart := output(t, "tar", "-xzOf", filepath.Join(built.out, "trafficd-chart-"+testVersion+".tgz"), "trafficd/Chart.yaml")
	require.Contains(t, chart, "\nversion: "+testVersion)
	require.Contains(t, chart, "\nappVersion: "+testVersion)
}

func packageOf(version, arch string) string {
	return filepath.Join(built.out, "trafficd_"+strings.Replace(version, "-", "~", 1)+"_"+arch+".deb")
}

// TestSBOM checks that each module that the Go tool finds in a program is in the SBOM and, with
// its licence, in the notices.
func TestSBOM(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(built.out, "trafficd-"+testVersion+".cdx.json"))
	require.NoError(t, err)
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	var bom cdx.BOM
	require.NoError(t, strict.Decode(&bom))
	require.Equal(t, testVersion, bom.Metadata.Component.Version)
	listed := map[string]bool{}
	for _, c := range *bom.Components {
		require.NotEmpty(t, c.Version, c.Name)
		require.False(t, listed[c.PackageURL], "listed twice: %s", c.PackageURL)
		listed[c.PackageURL] = true
	}
	notices, err := os.ReadFile(filepath.Join(built.build, "NOTICES.txt"))
	require.NoError(t, err)
	modules := 0
	for _, name := range programs {
		for line := range strings.Lines(output(t, "go", "version", "-m", built.program(runtime.GOARCH, name))) {
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[0] != "dep" {
				continue
			}
			modules++
			require.True(t, listed["pkg:golang/"+fields[1]+"@"+fields[2]], line)
			require.Contains(t, string(notices), "==== "+fields[1]+" "+fields[2]+": ")
		}
	}
	require.Greater(t, modules, 20)
	require.True(t, listed["pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go")])
	require.Contains(t, string(text), `"pkg:npm/preact@`)
	require.NotContains(t, string(text), `"pkg:npm/vitest@`, "only used for development")
}

// TestReleaseRejects checks that a release requires a clean tree and an entry in CHANGELOG.md, and
// that it otherwise deletes nothing.
func TestReleaseRejects(t *testing.T) {
	f := func(stamp, what, want string) {
		t.Helper()
		out := t.TempDir()
		earlier := filepath.Join(out, "SHA256SUMS")
		require.NoError(t, os.WriteFile(earlier, nil, 0o600))
		require.ErrorContains(t, run(root, out, stamp, what), want)
		require.FileExists(t, earlier, "the earlier release is kept")
	}
	f("0123abc+changes of 2026-11-22", "release", "the tree has uncommitted changes")
	f("v999.0.0 of 2026-11-22", "release", `CHANGELOG.md has no heading "## 999.0.0"`)
	f("v999.0.0 of 2026-11-22", "", "must be image, package or release")
}

// TestCheckChangelog checks that a heading must name the version exactly.
func TestCheckChangelog(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		r := &release{root: t.TempDir(), out: t.TempDir(), version: "1.2.3"}
		require.NoError(t, os.WriteFile(filepath.Join(r.root, "CHANGELOG.md"), []byte("# Changelog\n\n"+text+"\n"), 0o600))
		if want == "" {
			require.NoError(t, r.checkChangelog())
			return
		}
		require.ErrorContains(t, r.checkChangelog(), want)
	}
	f("## 1.2.3", "")
	f("## 1.2.3 (2026-11-22)", "")
	f("## 1.2.30", `no heading "## 1.2.3"`)
	f("### 1.2.3", `no heading "## 1.2.3"`)
}
