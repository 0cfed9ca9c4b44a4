package tui

import (
	"strings"

	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/palette"
)

// synonyms are other words for what keys do: those of schedulers, of other consoles, of a tired person.
var synonyms = map[key.Action]string{
	key.Approve:       "accept yes ok confirm allow go",
	key.Veto:          "reject deny no decline withdraw",
	key.Undo:          "revert rollback reverse unapply",
	key.Freeze:        "stop pause halt hold unfreeze resume thaw automation",
	key.Mode:          "auto automatic observe policy who",
	key.Ack:           "acknowledge seen",
	key.Snooze:        "silence mute quiet",
	key.Mute:          "bell sound silence alarm",
	key.HandOver:      "handover shift oncall",
	key.Why:           "evidence explain reason cause",
	key.Runbook:       "docs guide manual todo playbook",
	key.ShowOutput:    "logs log stdout stderr tail stack dmesg xid kernel",
	key.ShowRanks:     "gpus nodes heatmap devices",
	key.ShowGrid:      "pipeline stages replicas topology",
	key.ShowPosterior: "chart history iterations probability",
	key.ShowLadder:    "mitigations actions rungs options",
	key.ShowRecovery:  "failures lost restart spares exposure",
	key.ShowEvents:    "audit history journal timeline log",
	key.RunTest:       "validate diagnose burnin check probe",
	key.StopTest:      "cancel release kill",
	key.AbortRecovery: "cancel kill stop end",
	key.FenceNode:     "drain cordon evict kill remove",
	key.LiftFence:     "unfence uncordon undrain readmit return back",
	key.RenewRank:     "restart respawn kill replace",
	key.Export:        "report save download write",
	key.Copy:          "yank clipboard",
	key.CopyLink:      "share url",
	key.Theme:         "colours colors dark light skin",
	key.Quit:          "exit leave close",
	key.ShowFleet:     "jobs all fleet",
}

// commandSynonyms are other words for commands, by their name.
var commandSynonyms = map[string]string{
	"fence":    "drain cordon evict kill remove",
	"lift":     "unfence uncordon undrain readmit return back",
	"renew":    "restart respawn kill replace",
	"bar":      "exclude ban blacklist block reserve",
	"unbar":    "allow unban unblock",
	"test":     "validate diagnose burnin check probe",
	"snooze":   "silence mute quiet",
	"wake":     "unsnooze unmute",
	"assign":   "owner take own",
	"note":     "comment annotate",
	"handover": "shift oncall",
	"device":   "gpu node link history",
	"open":     "goto jump show",
	"filter":   "search grep find",
	"rank":     "goto jump select",
}

// withSynonyms is an entry with the other words for it.
func withSynonyms(e palette.Entry) palette.Entry {
	words := synonyms[e.Action]
	if e.Action == key.None {
		name, _, _ := strings.Cut(e.Name, " ")
		words = commandSynonyms[name]
	}
	e.Also = strings.Fields(words)
	return e
}
