// Package config has the daemon's settings: each section is the Config of the package that it
// configures. Package conf reads them.
package config
