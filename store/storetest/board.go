package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/meteproject/mete/quota"
)

// Boards carry word between the keepers of one Memory, each word some time after the
// deed.
type Boards struct {
	memory *Memory
	delay  time.Duration

	mu  sync.Mutex
	all []*board // guarded by mu
}

// NewBoards returns boards over m.
func NewBoards(m *Memory, delay time.Duration) *Boards {
	b := &Boards{memory: m, delay: delay}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = b.changed
	return b
}

// Join returns the board of one keeper, which keeper tells: it is made after its board.
func (b *Boards) Join(keeper func() *quota.Keeper) quota.Board {
	one := &board{boards: b, keeper: keeper, followed: map[quota.Key]bool{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, one)
	return one
}

// changed tells those who follow an account how it is now.
func (b *Boards) changed(key quota.Key, a quota.Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.followed[key] {
			one.tell(func(k *quota.Keeper) { k.Changed(key, a) })
		}
	}
}

type board struct {
	boards   *Boards
	keeper   func() *quota.Keeper
	followed map[quota.Key]bool // guarded by boards.mu
}

func (o *board) tell(word func(*quota.Keeper)) {
	time.AfterFunc(o.boards.delay, func() { word(o.keeper()) })
}

// Recall implements [quota.Board].
func (o *board) Recall(_ context.Context, key quota.Key) error {
	o.boards.mu.Lock()
	defer o.boards.mu.Unlock()
	for _, other := range o.boards.all {
		if other != o {
			other.tell(func(k *quota.Keeper) { k.Recalled(key) })
		}
	}
	return nil
}

// Follow implements [quota.Board].
func (o *board) Follow(key quota.Key) {
	key = withoutRoot(key)
	o.boards.mu.Lock()
	o.followed[key] = true
	o.boards.mu.Unlock()
	o.tell(func(k *quota.Keeper) { k.Changed(key, o.boards.memory.Account(key)) })
}

// Unfollow implements [quota.Board].
func (o *board) Unfollow(key quota.Key) {
	o.boards.mu.Lock()
	defer o.boards.mu.Unlock()
	delete(o.followed, withoutRoot(key))
}
