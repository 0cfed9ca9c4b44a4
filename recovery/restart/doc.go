// Package restart is the state machine of a restart of the whole job: rung S4,
// and recoveries that keep no survivor. The processes leave, nodes start others,
// and the new job epoch begins; or the launch fails and is cleared away.
//
// The machine is pure: it takes time as an argument, looks at the cluster by a function of
// its owner, and says what is to be done. Its owner makes the state durable before it sends
// a command of it; a machine that is made of that state
// again goes on where it was, with the same command ids.
//
// It must not start processes while one of before may still run, and must not
// begin a launch twice.
package restart
