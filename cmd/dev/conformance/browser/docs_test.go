package browser

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

const docsDir = "../../../../sources/page/docs"

// TestDocs checks that both listeners show every operation of the OpenAPI document, also below a
// base path, and request nothing from another host.
func TestDocs(t *testing.T) {
	needs.Everything(t, "Chromium")
	d := daemontest.New(t, "api.base_path=/traffic").Run()
	d.Await(http.StatusOK)
	chrome := startBrowser(t)
	for _, at := range []string{"http://" + d.API + "/traffic/docs", "http://" + d.Ops + "/docs"} {
		tab := chrome.tab(t, 1200, 800, "light")
		tab.do(chromedp.Navigate(at))
		tab.until("document.querySelector('openapi-explorer')?.shadowRoot?.innerHTML.includes('/dataprovider/ingestion/v1/detectors/data/ingest')")
		var text string
		tab.eval(&text, "document.querySelector('openapi-explorer').shadowRoot.innerHTML")
		for _, operation := range []string{"/mlf/v1/forecast/realtime", "/xroute/ws/XRoute"} {
			require.Contains(t, text, operation, at)
		}
		require.Empty(t, tab.takeMessages(), at)
	}
}

// TestDocsRenderer checks that the renderer comes from the version of the package that
// package.json names.
func TestDocsRenderer(t *testing.T) {
	var manifest struct{ Dependencies map[string]string }
	text, err := os.ReadFile(filepath.Join(docsDir, "package.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &manifest))
	packed := "openapi-explorer-" + manifest.Dependencies["openapi-explorer"] + ".tgz"
	directory := foreign.Fetched(t, "docs", filepath.Join(docsDir, "package.json"), func(dir string) {
		foreign.Fetch(t, "the renderer of /docs", "npm", "pack", "--pack-destination", dir, "openapi-explorer@"+manifest.Dependencies["openapi-explorer"])
	})
	for committed, packaged := range map[string]string{
		"openapi-explorer.min.js": "package/dist/browser/openapi-explorer.min.js", "LICENSE.openapi-explorer.txt": "package/LICENSE",
	} {
		want, err := exec.Command("tar", "xzOf", filepath.Join(directory, packed), packaged).Output()
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(docsDir, committed))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s: `make docs` copies it; commit the result", committed)
	}
}
