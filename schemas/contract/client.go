package contract

import "time"

// Right is an operation that an API key allows (contract 1.4).
type Right uint8

// The rights of an API key, combined with |.
const (
	RightIngest Right = 1 << iota
	RightForecast
	RightRouting
)

// Client describes the client to which an API key belongs. It is immutable; reloading the API keys
// creates new values.
type Client struct {
	Name            string // name of the API key, for logs and metrics; never the key itself
	Owner           string // identifies the client within its product instance; the same for all of its API keys
	ProductInstance string
	Rights          Right
	Zone            *time.Location // never nil

	RequestsPerSecond, ItemsPerSecond float64 // rate limits, enforced by package api; 0: none
}

// May reports whether the client has all rights in r.
func (c *Client) May(r Right) bool { return c.Rights&r == r }
