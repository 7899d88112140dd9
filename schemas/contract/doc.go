// Package contract defines what all interfaces of trafficd share: error codes, the API error, and
// the identity and rights of clients. It imports no other package of this module.
//
// contract.md in this directory is the reference for all interfaces. Comments cite its sections as
// "contract 1.2".
package contract
