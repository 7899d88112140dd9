//go:build !race

package journal

// crashLives is how often TestCrashes lets the machine die in the normal run.
const crashLives = 40_000
