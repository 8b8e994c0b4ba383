// Package worker is the agent on a GPU machine: what shall run comes in, what does run goes out. A pure step decides, one
// loop acts.
package worker
