package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
)

// claimBatch is how many reservations a peer is asked about at once.
const claimBatch = 500

// A Claim is a reservation of a process that is gone, of which this one remembers no
// settlement.
type Claim struct {
	Token string
	Units []int64 // of each of its charges
	// Settled says that a peer has settled it, while no process remembered what was
	// settled before.
	Settled bool
}

// Claim asks all live peers whether they have settled some reservations, and sets Settled. Each settles as
// it was reserved what it has not settled, which changes no account: so it does not settle it afterwards. After
// an error nobody knows of all of them; those that a peer has claimed look settled from then on.
func (r *Router) Claim(ctx context.Context, claims []Claim) error {
	peers := r.view.Load().peers
	for _, p := range peers { // first: one that does not answer is to change nothing
		if err := p.claim(ctx, nil); err != nil {
			return err
		}
	}
	for _, p := range peers {
		for some := range slices.Chunk(claims, claimBatch) {
			if err := p.claim(ctx, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// claim asks one peer.
func (p *peer) claim(ctx context.Context, claims []Claim) error {
	asked := &metev1.SettleBatchRequest{Process: p.process}
	for i := range claims {
		asked.Settlements = append(asked.Settlements, &metev1.Settlement{
			Reservation: []byte(claims[i].Token), Used: claims[i].Units, Free: true, // so that no mutation counts as completed
		})
	}
	ctx, cancel := context.WithTimeout(ctx, p.r.cfg.CallFor)
	defer cancel()
	conn, err := p.line.get()
	var answer *metev1.SettleBatchResponse
	if err == nil {
		answer, err = metev1.NewReplicaServiceClient(conn).SettleBatch(ctx, asked)
	}
	if err == nil && len(answer.GetResults()) != len(claims) {
		err = errors.New("it answers about others")
	}
	if err != nil {
		return fmt.Errorf("ask replica %s at %s what it has settled: %w", name(p.process), p.line.where(), err)
	}
	for i, result := range answer.GetResults() {
		switch fromWire(result) { //nolint:exhaustive // all others have settled it, or cannot tell
		case authz.SettledAsReserved, authz.SettledFree: // free where nothing was charged
		default:
			claims[i].Settled = true
		}
	}
	return nil
}
