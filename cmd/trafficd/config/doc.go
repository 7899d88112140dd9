// Package config reads the daemon's settings from the defaults, a YAML file, the environment and the
// command line; later ones win.
//
// Each section is the Config of the package that it configures. The struct tags are the only list of
// keys: unknown keys, suggestions and the printed configuration follow from them.
package config
