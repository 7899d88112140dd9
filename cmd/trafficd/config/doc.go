// Package config holds the daemon's settings. Most sections are the Config of the package that they
// configure. Package conf loads them.
package config
