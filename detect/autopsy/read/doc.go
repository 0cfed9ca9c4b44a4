// Package read turns files of any kind into the facts of package autopsy.
//
// Each format is one entry of a table: how a line or a head is recognised, and what fact it
// gives. It guarantees that a fact has its file and line, that text from a file is cleaned and
// bounded, and that memory does not grow with a file's size beyond what its facts need. It opens
// no file and reads no clock. It must not judge: a line that states a fault is a fact, whether it
// matters is for the judges.
package read
