package browser

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trafficd/cmd/dev/conformance/foreign"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// pageApp is the directory of the page's sources.
const pageApp = "../../../../sources/page/app"

// pageModules returns a directory with the packages that the page is built from.
func pageModules(t *testing.T) string {
	t.Helper()
	return filepath.Join(foreign.Fetched(t, "page", filepath.Join(pageApp, "package-lock.json"), func(dir string) {
		for _, file := range []string{"package.json", "package-lock.json"} {
			foreign.CopyFile(t, filepath.Join(pageApp, file), filepath.Join(dir, file))
		}
		install := []string{"npm", "ci", "--prefix", dir, "--no-audit", "--no-fund"}
		if version, err := exec.Command("node", "--version").Output(); err == nil && strings.HasPrefix(string(version), "v18.") {
			// Vite's packages need a newer Node.js, or npm leaves some of them out.
			install = append([]string{"npx", "--yes", "--package", "node@22.23.3"}, install...)
		}
		foreign.Fetch(t, "the packages of the web page", install[0], install[1:]...)
	}), "node_modules")
}

// TestPageBuild lints and tests the page's sources, builds them, and compares the result with what
// is committed.
func TestPageBuild(t *testing.T) {
	needs.Everything(t, "npm")
	root := t.TempDir()
	app := filepath.Join(root, "app")
	committed := os.DirFS(filepath.Join(pageApp, ".."))
	require.NoError(t, fs.WalkDir(committed, "app", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		foreign.CopyFile(t, filepath.Join(pageApp, "..", path), filepath.Join(root, path))
		return nil
	}))
	require.NoError(t, os.Symlink(pageModules(t), filepath.Join(app, "node_modules")))
	for _, script := range []string{"lint", "test", "build"} {
		out, err := exec.Command("npm", "run", script, "--prefix", app).CombinedOutput()
		require.NoError(t, err, "npm run %s:\n%s", script, out)
	}
	require.Equal(t, files(t, committed, "dist"), files(t, os.DirFS(root), "dist"), "`make page` builds the page; commit the result")
}

// files returns the contents of the files in a directory by path, decompressed: compressors differ.
func files(t *testing.T, tree fs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(tree, dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		require.NoError(t, err)
		require.Less(t, len(text), 1_000_000, path)
		if strings.HasSuffix(path, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			require.NoError(t, err)
			text, err = io.ReadAll(z)
			require.NoError(t, err)
		}
		all[path] = string(text)
		return nil
	}))
	return all
}
