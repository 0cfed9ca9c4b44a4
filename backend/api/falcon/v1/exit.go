package falconv1

// ExitedNormally is what RankState.exit says of a process that ended with
// status 0: one of the two texts in it that are compared and not just shown.
const ExitedNormally = "exited normally"

// ExitedInOrder is what it says where no kernel tells the status of a process
// that had given up all its communicators before.
const ExitedInOrder = "exited in order"

// ExitedWell reports whether an exit text is of a process that ended with success.
func ExitedWell(exit string) bool { return exit == ExitedNormally || exit == ExitedInOrder }
