// Package conf reads the settings of a program from the defaults, a YAML file, the environment and
// the command line; later ones win. It also prints them and configures the log.
//
// Settings are strings, booleans, numbers (int, int64, float64), durations, and lists and sections
// of these. Their keys are the struct tags "setting".
package conf
