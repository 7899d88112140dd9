// Package measurement is the noun that reading, generating and sending share:
// one measurement on its way to the daemon, in the JSON of
// contract 5.1.
//
// It is the leaf of this tool: feed and generate make items, send takes them,
// and none of the three knows another.
package measurement
