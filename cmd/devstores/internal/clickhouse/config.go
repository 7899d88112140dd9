package clickhouse

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed config.xml
var configXML string

//go:embed users.xml
var usersXML []byte

var configTemplate = template.Must(template.New("config.xml").Parse(configXML))

// home is a server's folder: data, logs and the configuration, all under it.
type home string

func makeHome(dir string) (home, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot make ClickHouse's folder: %w", err)
	}
	h := home(abs)
	for _, sub := range []string{"data", "logs", "tmp"} {
		if err := os.MkdirAll(h.path(sub), 0o755); err != nil {
			return "", fmt.Errorf("cannot make ClickHouse's folder: %w", err)
		}
	}
	return h, nil
}

func (h home) path(name string) string { return filepath.Join(string(h), name) }

// writeConfig writes config.xml and users.xml anew at every start: ports may have changed.
func (h home) writeConfig(cfg Config) error {
	f, err := os.Create(h.path("config.xml"))
	if err != nil {
		return fmt.Errorf("cannot write ClickHouse's configuration: %w", err)
	}
	defer f.Close()
	if err := configTemplate.Execute(f, map[string]any{"Home": string(h), "TCP": cfg.TCP, "HTTP": cfg.HTTP}); err != nil {
		return fmt.Errorf("cannot write ClickHouse's configuration: %w", err)
	}
	if err := os.WriteFile(h.path("users.xml"), usersXML, 0o644); err != nil {
		return fmt.Errorf("cannot write ClickHouse's users: %w", err)
	}
	return nil
}
