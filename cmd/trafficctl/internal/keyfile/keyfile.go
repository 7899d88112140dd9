// Package keyfile creates API keys and edits the daemon's keys file (contract 1.4). The file
// contains SHA-256 digests, never keys.
package keyfile

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"trafficd/cmd/trafficctl/internal/yamlfile"
	"trafficd/sources/api"
)

// NewKey returns a key of 256 random bits. Because it cannot be guessed, a plain digest protects it
// as well as a slow hash would. The prefix makes it recognisable to people and to secret scanners.
func NewKey() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return "tfd_" + base64.RawURLEncoding.EncodeToString(secret)
}

// Digest returns the SHA-256 digest of a key in hex.
func Digest(key string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// Certificate returns the SHA-256 fingerprint of the first certificate in a PEM file, and describes
// the certificates that an entry with it and the subject accepts.
func Certificate(path, subject string) (fingerprint, accepted string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", fmt.Errorf("cannot read the certificate: %w", err)
	}
	var certificate *x509.Certificate
	if block, _ := pem.Decode(text); block == nil || block.Type != "CERTIFICATE" {
		err = errors.New("the file must begin with a PEM certificate")
	} else {
		certificate, err = x509.ParseCertificate(block.Bytes)
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read the certificate in %s: %w", path, err)
	}
	own := api.SubjectOf(certificate)
	switch {
	case !certificate.IsCA && subject != "" && subject != own:
		return "", "", fmt.Errorf("--subject is %q, but the certificate in %s is for %q; for renewed certificates, give that of their CA",
			subject, path, own)
	case !certificate.IsCA:
		accepted = fmt.Sprintf("only the certificate with the subject %s that expires at %s",
			own, certificate.NotAfter.UTC().Format(time.RFC3339))
	case subject != "":
		accepted = fmt.Sprintf("certificates with the subject %s of the CA %s", subject, own)
	default:
		accepted = fmt.Sprintf("every client certificate of the CA %s; --subject restricts it", own)
	}
	return fmt.Sprintf("%x", sha256.Sum256(certificate.Raw)), accepted, nil
}

// Read returns the entries of a keys file. If the daemon cannot use them, Read returns them with an
// error.
func Read(path string) (entries []api.KeyEntry, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys file: %w", err)
	}
	if entries, err = api.ParseKeys(text); err != nil {
		err = fmt.Errorf("the daemon cannot use the keys file %s: %w", path, err)
	}
	return entries, err
}

// Append adds a key to the file, which it creates if necessary. Comments and order are kept.
// Readers see either the old file or the new one, and concurrent edits are serialised. The file
// keeps its mode and owner, so that the daemon can still read it.
func Append(path string, e api.KeyEntry) error {
	err := edit(path, func(keys *yaml.Node) error {
		if slices.ContainsFunc(keys.Content, named(e.Name)) {
			return fmt.Errorf("a key named %q already exists; choose another --name, for example %q", e.Name, e.Name+"-2")
		}
		var entry yaml.Node
		keys.Content = append(keys.Content, &entry)
		return entry.Encode(e)
	})
	if err != nil {
		return fmt.Errorf("cannot add the key to %s: %w", path, err)
	}
	return nil
}

// Revoke removes the key with the given name from the file. An unknown name is an error.
func Revoke(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("cannot revoke the key: %w", err)
	}
	err := edit(path, func(keys *yaml.Node) error {
		if !slices.ContainsFunc(keys.Content, named(name)) {
			return fmt.Errorf("no key is named %q; run `trafficctl key list` to see the names", name)
		}
		keys.Content = slices.DeleteFunc(keys.Content, named(name)) // several if the file was edited by hand
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot revoke the key in %s: %w", path, err)
	}
	return nil
}

// Rename changes the name of the key. Its client stays the same: if the entry has none, the client
// is the old name.
func Rename(path, name, to string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("cannot rename the key: %w", err)
	}
	err := edit(path, func(keys *yaml.Node) error {
		at := slices.IndexFunc(keys.Content, named(name))
		switch {
		case at < 0:
			return fmt.Errorf("no key is named %q; run `trafficctl key list` to see the names", name)
		case slices.ContainsFunc(keys.Content, named(to)):
			return fmt.Errorf("a key named %q already exists", to)
		}
		var client string
		entry := keys.Content[at]
		for i := 0; i+1 < len(entry.Content); i += 2 {
			switch entry.Content[i].Value {
			case "name":
				entry.Content[i+1].SetString(to)
			case "client":
				client = entry.Content[i+1].Value
			}
		}
		if client == "" {
			key, value := new(yaml.Node), new(yaml.Node)
			key.SetString("client")
			value.SetString(name)
			entry.Content = append(entry.Content, key, value)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot rename the key in %s: %w", path, err)
	}
	return nil
}

// edit rewrites the file after apply has changed the items of its `keys` list, unless the daemon
// could not use the result: its previous keys would stay in use.
func edit(path string, apply func(keys *yaml.Node) error) error {
	change := func(root *yaml.Node) error {
		keys, err := yamlfile.List(root, "keys")
		if err != nil {
			return err
		}
		return apply(keys)
	}
	return yamlfile.Edit(path, change, func(text []byte) error {
		if _, err := api.ParseKeys(text); err != nil {
			return fmt.Errorf("the daemon could not use the new file; correct the file first: %w", err)
		}
		return nil
	})
}

// named returns a function that reports whether an entry has the given name.
func named(name string) func(entry *yaml.Node) bool {
	return func(entry *yaml.Node) bool {
		var e struct{ Name string }
		return entry.Decode(&e) == nil && e.Name == name
	}
}

// Text returns an entry in the format of the keys file.
func Text(e api.KeyEntry) string { return yamlfile.Text([]api.KeyEntry{e}) }
