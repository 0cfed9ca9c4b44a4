package falconv1

// ExitedNormally is what RankState.exit says of a process that ended with
// status 0: the one text in it that is compared and not just shown.
const ExitedNormally = "exited normally"
