package quota

import (
	"context"
	"time"
)

// recallEvery is how often one purse asks other replicas to return units at most.
const recallEvery = time.Second

// recallTimeout bounds the request that asks for them.
const recallTimeout = 120 * time.Millisecond

// followLonger is how much longer than a refusal is remembered its account is
// followed: a tenant that goes on asking is refused again by then.
const followLonger = 5 * time.Second

// giveBackAfter is how long what was given back waits to be reported while another
// replica refuses requests for lack of it.
const giveBackAfter = time.Second

// maxTold bounds how many refusals a second the others are told of: each is a write of
// the store, and where very many accounts are used up at once, some wait for the next
// refusal.
const maxTold = 100

// A recall is one wait for units that other replicas return, before requests are
// refused for lack of them (design 6.3).
type recall struct {
	until int64 // monotonic time; 0: none is under way
	send  bool  // the others are still to be asked
	owed  bool  // they hold units, and were asked too lately to be asked again
	sent  since
	told  int64 // monotonic time of the last word to the others that nobody waited for; 0: none
	left  int64 // as last heard
	least int64
}

// mayRecall reports whether a refusal has to wait for what others hold, and begins to.
func (p *Purse) mayRecall(now Instant, op *Operation, res Result) bool {
	if p.wait == nil || !p.recallable(op, res) {
		return false
	}
	until := p.waiting.at.Mono + int64(p.Wait()/3*2) // time is left for the answer
	if now.Mono >= until {
		return false
	}
	p.recall.left, p.recall.least = res.Left, op.Min
	if p.recall.until == 0 {
		p.recall.until = until
		p.recall.send = !p.recall.sent.set || now.since(p.recall.sent.at) >= recallEvery
		if p.recall.owed = !p.recall.send; p.recall.send {
			p.recall.sent = since{now, true}
		}
	}
	p.follow()
	p.lookAt(until)
	return true
}

// recallable reports whether others hold units that they may return.
func (p *Purse) recallable(op *Operation, res Result) bool {
	return p.keeper.cfg.Board != nil && res.Leased > sum(op.Hold)
}

// tellRefused has the others told that requests are refused, where they hold nothing but
// have used units that may come back. Nobody waits for it.
func (p *Purse) tellRefused(now Instant) {
	if p.keeper.cfg.Board == nil || p.others <= 0 || p.keeper.replicas() < 2 {
		return
	}
	memory := p.keeper.cfg.RefusalMemory
	if p.recall.sent.set && now.since(p.recall.sent.at) < memory || p.recall.told > 0 && now.Mono-p.recall.told < int64(memory) {
		return // they know
	}
	if p.keeper.mayTell(now) {
		p.recall.send, p.recall.told = true, now.Mono
	}
}

// mayTell reports whether one more refusal may be told of in this second, and counts it.
func (k *Keeper) mayTell(now Instant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if second := now.second(); second != k.toldIn {
		k.toldIn, k.told = second, 0
	}
	k.told++
	return k.told <= maxTold
}

// offer has units that came back returned soon, if another replica has asked for some
// lately and may be refusing requests.
func (p *Purse) offer(now Instant) {
	if now.Mono < p.wantedUntil {
		p.returning = true
		p.lookAt(now.Mono + int64(giveBackAfter))
	}
}

// sendRecall asks the other replicas, if p is to.
func (k *Keeper) sendRecall(ctx context.Context, p *Purse) {
	p.mu.Lock()
	p.payRecall(k.now())
	send := p.recall.send
	p.recall.send = false
	p.mu.Unlock()
	if !send {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	if err := k.cfg.Board.Recall(ctx, p.key); err == nil {
		k.stats.recalls.Add(1)
	}
}

// recalling reports whether p still waits for units that others return. When the time
// for it is over, requests are refused.
func (p *Purse) recalling(now Instant) bool {
	switch {
	case p.recall.until == 0:
		return false
	case now.Mono < p.recall.until:
		p.lookAt(p.recall.until)
		return true
	}
	p.refuse(now, p.recall.left)
	if p.recall.owed {
		p.lookAt(p.recall.sent.at.Mono + int64(recallEvery))
	}
	p.wake()
	return false
}

// payRecall has the others asked for what they hold, where they were asked too lately for
// the requests that are refused now: else what was lent to them again would be refused for
// as long as a refusal is remembered.
func (p *Purse) payRecall(now Instant) {
	if p.recall.owed && now.since(p.recall.sent.at) >= recallEvery {
		p.recall.send, p.recall.owed, p.recall.sent = p.refusal.set, false, since{now, true}
	}
}

// refuse remembers that no more than left is to be had (A35).
func (p *Purse) refuse(now Instant, left int64) {
	p.refusal, p.waiting = refusal{since{now, true}, max(0, left)}, since{}
	p.recall.until = 0
	p.needs = min(p.needs, p.refusal.left) // nobody comes back for what is refused
	p.follow()
	if p.following {
		p.lookAt(now.Mono + int64(p.keeper.cfg.RefusalMemory+followLonger))
	}
}

// follow hears of every change of p's account from now on.
func (p *Purse) follow() {
	if p.keeper.cfg.Board != nil && !p.following {
		p.following = true
		p.keeper.cfg.Board.Follow(p.key)
	}
}

func (p *Purse) unfollow() {
	if p.following {
		p.following = false
		p.keeper.cfg.Board.Unfollow(p.key)
	}
}

// Changed tells how an account is that the board was asked to follow: units that came
// back are asked for at once. It is safe for concurrent use.
func (k *Keeper) Changed(key Key, a Account) {
	if p := k.find(key); p != nil {
		p.mu.Lock()
		p.heard(a)
		p.mu.Unlock()
	}
}

func (p *Purse) heard(a Account) {
	left := p.terms.Ceiling - a.Used() - a.Leased()
	others := a.Leased()
	if i, known := a.find(p.holder); known {
		others -= a.Holders[i].leased()
	}
	switch {
	case p.recall.until > 0 && (left >= p.recall.least || others == 0):
		p.recall.until = 0
		p.keeper.hurry(p)
	case p.recall.until > 0:
		p.recall.left = left
	case p.refusal.set && left > p.refusal.left:
		p.refusal = refusal{}
	}
}

// Recalled tells that another replica needs units of an account: this one returns what
// it has not spent, and for a while, soon, what is given back. It is safe for concurrent
// use.
func (k *Keeper) Recalled(key Key) {
	p := k.find(key)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wantedUntil = k.now().Mono + int64(k.cfg.RefusalMemory+followLonger)
	if p.held > 0 || p.used < p.reported {
		p.returning = true
		k.poke(p)
	}
}

// giveUp gives up all that is not spent, if another replica has asked for it. It tells
// whether it did; what was used goes with it, since that may be what the other one
// waits to know. Nothing is kept for what may come: traffic that has just gone elsewhere
// looks like demand, and a request that does come asks again. Who waits for a recall of
// its own gives up what is too little for that: else two that have asked each other
// would both refuse.
func (p *Purse) giveUp(now Instant) bool {
	if !p.returning || p.need > 0 && p.recall.until == 0 {
		return false
	}
	before := p.spendable(now)
	p.trim(now, 0)
	p.batch = 0
	p.recall.least = p.need
	p.keeper.stats.returned.Add(before)
	return true
}

// find returns the open purse of an account, or nil.
func (k *Keeper) find(key Key) *Purse {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.purses[key.account()]
}
