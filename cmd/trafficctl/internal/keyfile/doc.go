// Package keyfile makes API keys and enters them into the daemon's keys file
// (contract 1.4): the file holds SHA-256 digests, never keys, so that
// reading it lets nobody in.
package keyfile
