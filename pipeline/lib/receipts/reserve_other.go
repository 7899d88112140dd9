//go:build !linux

package receipts

import "os"

// reserve does nothing: on a full disk, receipts are kept in memory.
func reserve(*os.File, int64) error { return nil }
