//go:build !race

package journal

// crashLives is the number of crashes in TestCrashes.
const crashLives = 40_000
