// Package contract holds what every interface of trafficd shares: the error codes, the API error, the client's
// identity and rights. It is a leaf: it imports nothing of this module.
//
// contract.md beside this file is the reference of all interfaces as trafficd implements them. Comments cite its
// sections as "contract 1.2".
package contract
