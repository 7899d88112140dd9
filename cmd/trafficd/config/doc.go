// Package config holds the daemon's settings. Each section is the Config of the package that it
// configures. Package conf loads them.
package config
