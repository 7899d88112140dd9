package contract

import "time"

// Right is an operation that a key allows (contract 1.4).
type Right uint8

// The rights of a key, combined by |.
const (
	RightIngest Right = 1 << iota
	RightForecast
	RightRouting
)

// Client is the client that a key belongs to. It is immutable; reloading the keys creates new
// values.
type Client struct {
	Name            string // name of the key, for logs and metrics; never the key itself
	Owner           string // identifies the client within its product instance; the same for all its keys
	ProductInstance string
	Rights          Right
	Zone            *time.Location // never nil
}

// May reports whether the client has the right.
func (c *Client) May(r Right) bool { return c.Rights&r == r }
