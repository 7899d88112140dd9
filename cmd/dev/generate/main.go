// Generate writes what is generated from Go: the help of the settings
// (cmd/internal/conf/help.json), deployments/settings.yaml, and the tables of codes and rules in
// the contract and in the OpenAPI document, and the tables of the archive's columns and states. Run
// it at the root of the repository; with --check it only reports files that differ.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficd/config"
)

const (
	helpPath     = "cmd/internal/conf/help.json"
	settingsPath = "deployments/settings.yaml"
	contractPath = "schemas/contract/contract.md"
	openAPIPath  = "schemas/openapi/openapi.yaml"
	archivePath  = "schemas/clickhouse/README.md"
)

func main() {
	var err error
	if slices.Contains(os.Args[1:], printFlag) {
		c := config.Default()
		err = conf.Print(os.Stdout, &c, nil)
	} else {
		err = run(slices.Contains(os.Args[1:], "--check"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	texts, err := readHelp()
	if err != nil {
		return err
	}
	help, err := json.MarshalIndent(texts, "", "  ")
	if err != nil {
		return err
	}
	files := map[string]func(old []byte) ([]byte, error){
		helpPath:     func([]byte) ([]byte, error) { return append(help, '\n'), nil },
		settingsPath: func([]byte) ([]byte, error) { return printSettings() },
		contractPath: func(old []byte) ([]byte, error) { return contractTables(string(old)) },
		openAPIPath:  func(old []byte) ([]byte, error) { return openAPICodes(string(old)) },
		archivePath:  func(old []byte) ([]byte, error) { return archiveTables(string(old)) },
	}
	var differ []string
	for _, path := range []string{helpPath, settingsPath, contractPath, openAPIPath, archivePath} { // the settings are printed with the help
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := files[path](old)
		switch {
		case err != nil:
			return fmt.Errorf("cannot generate %s: %w", path, err)
		case bytes.Equal(text, old):
		case check:
			differ = append(differ, path)
		default:
			fmt.Println("generate:", path)
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return err
			}
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%s must be generated again: run make generate", strings.Join(differ, ", "))
	}
	return nil
}

// printFlag makes this program print the daemon's default settings.
const printFlag = "--print-settings"

// printSettings returns the daemon's default settings with their help, which is compiled into a
// program.
func printSettings() ([]byte, error) {
	program := exec.CommandContext(context.Background(), "go", "run", "./cmd/dev/generate", printFlag)
	program.Stderr = os.Stderr
	text, err := program.Output()
	for line := range strings.Lines(string(text)) {
		if len(line) > 141 {
			err = fmt.Errorf("line of more than 140 bytes: %s", line)
		}
	}
	return text, err
}
