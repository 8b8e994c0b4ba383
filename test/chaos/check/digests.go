package check

// Digests: servers at one index and feature level hold one state, after restores and restarts too; and wherever a server
// counted its state again, it found what it had.
func Digests(h *History) []Violation {
	c := complaints{checker: "digests"}
	type position struct {
		epoch, index uint64
		level        uint32
	}
	first := map[position]*Digest{}
	for i := range h.Digests {
		d := &h.Digests[i]
		if d.Broken != "" {
			c.add(d.Time, "%s at index %d: counted again, the state is not what it says: %s", d.Server, d.Index, d.Broken)
		}
		key := position{uint64(d.Epoch), uint64(d.Index), d.Level}
		switch other := first[key]; {
		case d.Digest == "": // only counted again
		case other == nil:
			first[key] = d
		case other.Digest != d.Digest:
			c.add(d.Time, "at index %d of epoch %d %s has digest %s (at %s) and %s has %s (at %s): their states differ", d.Index, d.Epoch,
				other.Server, other.Digest, h.at(other.Time), d.Server, d.Digest, h.at(d.Time))
		}
	}
	return c.found
}
