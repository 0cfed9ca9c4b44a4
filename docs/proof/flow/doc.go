// Package flow is a judge: it plays training iterations on an emulated network
// at the level of flows, so that detector and planner can be judged by something
// that shares nothing with the planner's cost model (mitigate/cost).
//
// # What is emulated
//
// A network is links with capacities. A transfer is a flow that takes a stated
// share of every link on its way; the flows under way at a time get their
// max-min fair rates (Bertsekas and Gallager, Data Networks, §6.5.2), found
// exactly by progressive filling, and new ones whenever a flow begins or ends.
// A ring or tree that is pipelined in small pieces is one flow over all its
// edges: all of them advance at one rate. An iteration is a graph of
// computations and transfers; each begins when what it needs has ended, and the
// iteration takes as long as the graph.
//
// So, other than in the planner's model, transfers share ports, switches and
// the links inside a node; gradient buckets are reduced beside the backward
// pass that makes the next ones; messages between stages travel beside the
// computation of both ends; and there is no formula of a collective's or a
// pipeline's time.
//
// # What is guaranteed
//
// The same graph and capacities give the same times to the bit. Units are ms,
// 10⁶ bytes (MB) and MB/ms. The package is arithmetic only: no goroutine, no
// clock, no I/O. It imports nothing of the product, and no package of the product
// may import it (rules_test.go).
//
// Left out: packets, queues, congestion control's transients, and anything that
// makes rates differ from max-min fair ones. All of it is emulation; no figure of
// it was measured on hardware.
package flow
