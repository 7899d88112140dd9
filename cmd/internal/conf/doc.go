// Package conf reads the settings of a program from the defaults, a YAML file, the environment and
// the command line; later ones win. It also prints them and configures the log.
//
// The struct tags are the only list of keys: unknown keys, suggestions and the printed
// configuration follow from them.
package conf
