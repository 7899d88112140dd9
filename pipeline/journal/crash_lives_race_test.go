//go:build race

package journal

// crashLives is the number of crashes in TestCrashes, each of which takes ten times as long here.
const crashLives = 4_000
