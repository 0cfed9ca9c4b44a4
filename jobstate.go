package falcon

// JobState is where a job stands, as consoles show it.
type JobState string

// The states of a job.
const (
	JobWaiting  JobState = "waiting for agents"
	JobLearning JobState = "learning" // its healthy iteration time is not known yet
	JobSteady   JobState = "steady"
	JobSlow     JobState = "slow"
	JobLost     JobState = "lost"     // a rank is gone
	JobFinished JobState = "finished" // ended as it should

	JobRestarting JobState = "restarting" // by S4, or as a whole after a fault
	JobRecovering JobState = "recovering" // lost processes are being replaced
)
