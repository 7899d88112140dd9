package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// writeManPages writes a manual page of each program to the directory man. It contains what --help
// prints for the program and each of its subcommands.
func (r *release) writeManPages() error {
	if err := os.MkdirAll(filepath.Join(r.build, "man"), 0o755); err != nil {
		return err
	}
	for _, name := range programs {
		page, err := r.manPage(name)
		if err != nil {
			return fmt.Errorf("cannot write the manual page of %s: %w", name, err)
		}
		if err := r.create(filepath.Join(r.build, "man", name+".1.gz"), func(w io.Writer) error {
			z, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // fails only for an unknown level
			_, err := io.WriteString(z, page)
			return errors.Join(err, z.Close())
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) manPage(name string) (string, error) {
	top, err := r.help(name)
	if err != nil {
		return "", err
	}
	short, _, _ := strings.Cut(top, "\n")
	var page strings.Builder
	fmt.Fprintf(&page, ".TH %s 1 %s \"trafficd %s\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), r.date.Format("2006-01-02"), r.version,
		name, roff(strings.TrimSuffix(short, ".")))
	err = r.describe(&page, "DESCRIPTION", top, name)
	return page.String(), err
}

// subcommand matches a line of the list of subcommands in what --help prints.
var subcommand = regexp.MustCompile(`(?m)^  ([a-z-]+) {2,}\S`)

// describe appends a section with the text of a command, and then those of its subcommands.
func (r *release) describe(page *strings.Builder, title, text string, command ...string) error {
	fmt.Fprintf(page, ".SH %s\n.nf\n%s\n.fi\n", roff(title), roff(text))
	_, list, _ := strings.Cut(text, "\nAvailable Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, found := range subcommand.FindAllStringSubmatch(list, -1) {
		if found[1] == "help" || found[1] == "completion" {
			continue
		}
		below := append(command[:len(command):len(command)], found[1])
		text, err := r.help(below...)
		if err != nil {
			return err
		}
		if err := r.describe(page, strings.Join(below, " "), text, below...); err != nil {
			return err
		}
	}
	return nil
}

// help returns what a command prints with --help. The text is the same for all architectures.
func (r *release) help(command ...string) (string, error) {
	text, err := exec.Command(r.program(runtime.GOARCH, command[0]), append(command[1:], "--help")...).Output()
	return strings.TrimSpace(string(text)), err
}

// roff escapes a text.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return regexp.MustCompile(`(?m)^[.']`).ReplaceAllString(text, `\&$0`)
}
