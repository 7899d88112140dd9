// Package config makes the daemon's effective configuration: the defaults, a
// YAML file, the environment and the command line, each over the one before.
//
// Every section is the Config of the package that it configures; their koanf
// tags are the only list of keys there is. From it come the check for unknown
// keys, the nearest known key in an error, and the printed configuration.
package config
