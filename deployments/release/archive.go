package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// entry is a file or directory in an archive.
type entry struct {
	name    string
	source  string // path of the file to copy; empty: content is used
	content []byte
	dir     bool
	mode    int64
	owner   int // numeric ID of both the user and the group
}

// writeTar writes the entries in order. Owners are numeric, and all modification times are date.
func writeTar(w io.Writer, date time.Time, entries []entry) error {
	out := tar.NewWriter(w)
	for _, e := range entries {
		content := e.content
		if e.source != "" {
			var err error
			if content, err = os.ReadFile(e.source); err != nil {
				return fmt.Errorf("cannot read a file for an archive: %w", err)
			}
		}
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(content)), Mode: e.mode, Uid: e.owner, Gid: e.owner,
			ModTime: date, Format: tar.FormatPAX,
		}
		if e.dir {
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	return out.Close()
}

// create creates a file. A relative path is relative to the directory for the artefacts.
func (r *release) create(path string, write func(io.Writer) error) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.out, path)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// writeTarGz writes the entries to an artefact, a gzipped tar archive.
func (r *release) writeTarGz(name string, entries []entry) error {
	return r.create(name, func(w io.Writer) error {
		z, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // fails only for an unknown level
		return errors.Join(writeTar(z, r.date, entries), z.Close())
	})
}

// entriesOf returns entries for the files and directories below directory, with prefix before each
// name. It follows symbolic links.
func entriesOf(directory, prefix string) ([]entry, error) {
	list, err := os.ReadDir(directory) // sorted
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, d := range list {
		path := filepath.Join(directory, d.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			entries = append(entries, entry{name: prefix + d.Name(), source: path, mode: 0o644})
			continue
		}
		below, err := entriesOf(path, prefix+d.Name()+"/")
		if err != nil {
			return nil, err
		}
		entries = append(append(entries, entry{name: prefix + d.Name(), dir: true, mode: 0o755}), below...)
	}
	return entries, nil
}
