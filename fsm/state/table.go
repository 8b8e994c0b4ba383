package state

import (
	"iter"

	"github.com/google/btree"
)

// degree of the trees: a write copies the nodes on its path, once for each entry, so they are kept small.
const degree = 16

// item is a row with its hash, as of the last entry that touched it. Once the entry that made it is applied, nothing in it
// changes any more: a later edit makes another item.
type item[R any] struct {
	row     R
	hash    uint64 // that the digest holds for this key; 0 = none yet
	entry   uint64 // that made this item
	command uint64 // that edited it last
	gone    bool   // removed by the entry that made it
}

type cell[K, R any] struct {
	key  K
	item *item[R]
}

// table maps keys to rows, in key order. The writer edits; a frozen copy is for readers.
type table[K, R any] struct {
	tree   *btree.BTreeG[cell[K, R]]
	frozen *btree.BTreeG[cell[K, R]] // clone of tree, nil once tree was written since
	write  func(*encoder, *R)        // the row's canonical encoding
	own    func(*R)                  // copies what an edit changes in place; may be nil
	dirty  []*item[R]                // made by the entry at work
}

func newTable[K, R any](less func(a, b K) bool, write func(*encoder, *R), own func(*R)) table[K, R] {
	return table[K, R]{
		tree:  btree.NewG(degree, func(a, b cell[K, R]) bool { return less(a.key, b.key) }),
		write: write,
		own:   own,
	}
}

// freeze gives a copy that never changes. Only the writer may call it: cloning writes to the tree.
func (t *table[K, R]) freeze() table[K, R] {
	if t.frozen == nil {
		t.frozen = t.tree.Clone()
	}
	return table[K, R]{tree: t.frozen, write: t.write}
}

// get gives the row of a key, or nil.
func (t *table[K, R]) get(key K) *R {
	if c, ok := t.tree.Get(cell[K, R]{key: key}); ok {
		return &c.item.row
	}
	return nil
}

func (t *table[K, R]) len() int { return t.tree.Len() }

// all yields the rows in key order.
func (t *table[K, R]) all() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		t.tree.Ascend(func(c cell[K, R]) bool { return yield(&c.item.row) })
	}
}

// from yields the rows whose keys are not below key.
func (t *table[K, R]) from(key K) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		t.tree.AscendGreaterOrEqual(cell[K, R]{key: key}, func(c cell[K, R]) bool { return yield(&c.item.row) })
	}
}

// edit gives the row of a key to be changed in place, or nil. first says that the command at work had not edited it.
func (t *table[K, R]) edit(key K, w *work) (row *R, first bool) {
	c, ok := t.tree.Get(cell[K, R]{key: key})
	if !ok {
		return nil, false
	}
	it := c.item
	if it.entry != w.entry {
		it = &item[R]{row: it.row, hash: it.hash, entry: w.entry}
		if t.own != nil {
			t.own(&it.row)
		}
		t.put(key, it)
	}
	first = it.command != w.command
	it.command = w.command
	return &it.row, first
}

// insert adds a row under a key that has none and gives it to be changed in place.
func (t *table[K, R]) insert(key K, row R, w *work) *R {
	it := &item[R]{row: row, entry: w.entry, command: w.command}
	t.put(key, it)
	return &it.row
}

func (t *table[K, R]) put(key K, it *item[R]) {
	t.frozen = nil
	t.dirty = append(t.dirty, it)
	t.tree.ReplaceOrInsert(cell[K, R]{key, it})
}

// remove forgets a row.
func (t *table[K, R]) remove(key K, w *work) {
	c, ok := t.tree.Delete(cell[K, R]{key: key})
	if !ok {
		return
	}
	t.frozen = nil
	w.digest -= c.item.hash
	if c.item.entry == w.entry {
		c.item.gone = true
	}
}

// seal brings the digest up to date with what the entry at work made.
func (t *table[K, R]) seal(w *work) {
	for i, it := range t.dirty {
		t.dirty[i] = nil
		if it.gone {
			continue
		}
		hash := rowHash(&w.enc, t.write, &it.row)
		w.digest += hash - it.hash
		it.hash = hash
	}
	t.dirty = t.dirty[:0]
}

// index is an ordered set of keys, derived from rows.
type index[K comparable] struct {
	tree   *btree.BTreeG[K]
	frozen *btree.BTreeG[K]
}

func newIndex[K comparable](less func(a, b K) bool) index[K] {
	return index[K]{tree: btree.NewG(degree, less)}
}

func (x *index[K]) freeze() index[K] {
	if x.frozen == nil {
		x.frozen = x.tree.Clone()
	}
	return index[K]{tree: x.frozen}
}

func (x *index[K]) add(key K) {
	x.frozen = nil
	x.tree.ReplaceOrInsert(key)
}

func (x *index[K]) drop(key K) {
	x.frozen = nil
	x.tree.Delete(key)
}

// from yields the keys that are not below key.
func (x *index[K]) from(key K) iter.Seq[K] {
	return func(yield func(K) bool) { x.tree.AscendGreaterOrEqual(key, yield) }
}

func (x *index[K]) all() iter.Seq[K] {
	return func(yield func(K) bool) { x.tree.Ascend(yield) }
}

// move replaces one optional key by another.
func (x *index[K]) move(old K, was bool, new K, is bool) {
	if was == is && (!was || old == new) {
		return
	}
	if was {
		x.drop(old)
	}
	if is {
		x.add(new)
	}
}
