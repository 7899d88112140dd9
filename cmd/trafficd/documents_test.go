package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestLinks checks that the files and sections that the documents link to exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	needs.Program(t, "git")
	const root = "../.."
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```.*?^```$")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return blocks.ReplaceAllString(string(text), "")
	}
	anchors := func(document string) (found []string) {
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(document), -1) {
			kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
			found = append(found, strings.ReplaceAll(kept, " ", "-"))
		}
		return found
	}
	links := 0
	for _, document := range strings.Fields(string(list)) {
		document = filepath.Join(root, document)
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(document), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", document, m[1])
			if anchor != "" {
				require.Contains(t, anchors(target), anchor, "%s links to %s", document, m[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

// TestDocumentedSettings checks that the daemon accepts the settings that the documents show.
func TestDocumentedSettings(t *testing.T) {
	checked := 0
	for _, document := range []string{"../../README.md", "../../deployments/README.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			if regexp.MustCompile(`# (forecaster|feeder|rows)\.yaml|envSecret:`).MatchString(m[1]) { // of other programs, or values of the chart
				continue
			}
			file := filepath.Join(t.TempDir(), "trafficd.yaml")
			require.NoError(t, os.WriteFile(file, []byte(m[1]), 0o600))
			out, err := exec.CommandContext(t.Context(), binary, "--config", file, "--print-config").CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", document, m[1], out)
			checked++
		}
	}
	require.Equal(t, 5, checked)
}

// TestInvariantsHaveTests checks that the tests that CONTRIBUTING.md names exist.
func TestInvariantsHaveTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.github/CONTRIBUTING.md")
	require.NoError(t, err)
	tests := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(tests), 20)
	for _, m := range tests {
		require.NoError(t, exec.CommandContext(t.Context(), "git", "-C", "../..", "grep", "-q", "^func "+m[1]+"(").Run(), m[1])
	}
}
