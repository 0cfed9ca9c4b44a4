package main

import _ "embed" // of engineExample

// engineExample is falcon.yaml with every key and, but for names and addresses,
// its default. docs/cluster.md shows the same.
//
//go:embed falcon.example.yaml
var engineExample string
