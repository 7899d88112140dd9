// Package soap calls the routing web service of a daemon (contract 3): the
// client's side of package xroute.
package soap
