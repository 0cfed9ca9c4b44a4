package main

import (
	"fmt"
	"os"

	"github.com/failslow/falcon/tui/clean"
)

// refuseExisting refuses to write over what is there: a flag names a file for an export, and the
// file may be last night's. Devices such as /dev/stdout are no files.
func refuseExisting(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && (info.Mode().IsRegular() || info.IsDir()) {
		return fmt.Errorf("%w: %s: %s exists and is not written over; choose another name",
			errUsage, flag, clean.String(path))
	}
	return nil
}
