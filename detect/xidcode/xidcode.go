// Package xidcode says what the NVIDIA driver's error codes mean, and what to do about them.
//
// It guarantees that every code has a sentence, one that is not known too. Fatal is a code
// whose advice is a reset, a reboot or a replacement before the GPU is used again. The
// facts are those of NVIDIA's "XID Errors" (GPU Deployment and Management
// documentation), in words of our own. It is a table: it must not judge a device.
package xidcode

// Meaning is what a code means.
type Meaning struct {
	Fatal  bool
	Text   string
	Advice string
}

// The advice that several codes share.
const (
	checkProgram = "Most often the program's own fault: look at its last lines; test the GPU where it comes again on the same one."
	resetGPU     = "Drain the GPU and reset it; replace it where the error comes again."
	rebootNode   = "Take the node out and reboot it; have the GPU and its seating checked where it comes again."
	checkNVLink  = "Reset the GPU; where it comes again test its NVLinks, and have the board or its bridge checked."
	updateDriver = "Reset the GPU; report it to the vendor with nvidia-bug-report.sh, and update the driver."
	nothing      = "Nothing by itself: look for the error before it."
)

// meanings are the codes that matter to training jobs. 94 is not fatal: the error was
// contained, the process that it hit ends, and a new one may use the GPU at once.
var meanings = map[int]Meaning{
	8:  {false, "the GPU stopped processing: a program waited for too long", checkProgram},
	13: {false, "graphics engine exception: most often the program's own fault", checkProgram},
	31: {
		false,
		"memory access outside of what was mapped: most often the program's own fault",
		checkProgram,
	},
	32: {
		false,
		"a broken command stream: driver, PCIe or memory of the host",
		"Test the GPU and the host's PCIe; update the driver where it comes again.",
	},
	38: {false, "driver or firmware error", updateDriver},
	43: {false, "the GPU stopped processing for one program", nothing},
	45: {false, "channels were torn down: follows another error, or an end by force", nothing},
	46: {true, "the GPU stopped processing", resetGPU},
	48: {true, "uncorrectable ECC error", resetGPU},
	54: {
		false,
		"auxiliary power is not connected to the GPU's board",
		"Take the node out and check the power cables.",
	},
	61: {false, "internal micro-controller warning", resetGPU},
	62: {true, "internal micro-controller halt", resetGPU},
	63: {
		false,
		"a memory row was remapped: reset the GPU when it is convenient",
		"Reset the GPU when it is convenient: the spare row is used from then on.",
	},
	64: {
		true,
		"a memory row could not be remapped",
		"Replace the GPU: it has no spare row for its memory error.",
	},
	74: {true, "NVLink error", checkNVLink},
	79: {true, "the GPU has fallen off the bus", rebootNode},
	92: {
		false,
		"high rate of corrected ECC errors",
		"Watch it; run the vendor's memory diagnostics at the next maintenance.",
	},
	94: {
		false,
		"contained memory error: the process that it hit must be restarted",
		"Start the process again; reset the GPU when it is convenient.",
	},
	95:  {true, "uncontained memory error", resetGPU},
	109: {false, "context switch timeout", resetGPU},
	110: {true, "security fault", resetGPU},
	119: {true, "the GPU's system processor does not answer", updateDriver},
	120: {true, "the GPU's system processor failed", updateDriver},
	121: {
		false,
		"corrected error on the link between CPU and GPU (C2C)",
		"Watch it; have the module checked where it comes again.",
	},
	137: {
		false,
		"NVLink access that was not permitted: follows an error of a peer, or a program's fault",
		nothing,
	},
	140: {true, "unrecovered ECC error", resetGPU},
	143: {true, "the GPU could not be initialised", rebootNode},
	154: {
		false,
		"the driver asks for an action: the line says which",
		"Do what the line says: reset the GPU, or reboot the node.",
	},
}

// Of is what a code means.
func Of(code int) Meaning {
	if m, known := meanings[code]; known {
		return m
	}
	return Meaning{
		Text:   "not known to Falcon: see NVIDIA's list of XID errors",
		Advice: "Look it up in NVIDIA's list of XID errors.",
	}
}
