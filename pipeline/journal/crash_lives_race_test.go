//go:build race

package journal

// crashLives is how often TestCrashes lets the machine die where each life takes ten times as long.
const crashLives = 4_000
