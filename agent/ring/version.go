package ring

// Versions of the hook's file: the one of this release's hook, and the oldest that this
// agent reads.
const (
	Version       = shmVersion
	OldestVersion = oldestVersion
)
