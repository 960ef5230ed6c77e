package store

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/quota"
)

// encodeAccount returns a as it is stored. Fields that a newer version wrote are
// kept, of the account, its holders and their leases.
func encodeAccount(a quota.Account) ([]byte, error) {
	m := &metev1.Account{Base: a.Base, Holders: make([]*metev1.Holder, 0, len(a.Holders))}
	m.ProtoReflect().SetUnknown(a.Unknown)
	for _, h := range a.Holders {
		mh := &metev1.Holder{Id: h.ID, Seq: h.Seq, Used: h.Used, Reserved: h.Reserved}
		mh.ProtoReflect().SetUnknown(h.Unknown)
		for _, l := range h.Leases {
			ml := &metev1.Lease{Id: l.ID, Units: l.Units, Version: l.Version, Exact: l.Exact}
			ml.ProtoReflect().SetUnknown([]byte(l.Unknown))
			mh.Leases = append(mh.Leases, ml)
		}
		m.Holders = append(m.Holders, mh)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode account: %w", err)
	}
	return b, nil
}

// decodeAccount is the inverse of encodeAccount. No bytes are the zero Account.
func decodeAccount(b []byte) (quota.Account, error) {
	var m metev1.Account
	if err := proto.Unmarshal(b, &m); err != nil {
		return quota.Account{}, fmt.Errorf("decode account: %w", err)
	}
	a := quota.Account{Base: m.GetBase(), Unknown: m.ProtoReflect().GetUnknown()}
	for _, mh := range m.GetHolders() {
		h := quota.Holder{ID: mh.GetId(), Seq: mh.GetSeq(), Used: mh.GetUsed(), Reserved: mh.GetReserved(), Unknown: mh.ProtoReflect().GetUnknown()}
		for _, ml := range mh.GetLeases() {
			h.Leases = append(h.Leases, quota.Lease{
				ID: ml.GetId(), Units: ml.GetUnits(), Version: ml.GetVersion(), Exact: ml.GetExact(),
				Unknown: string(ml.ProtoReflect().GetUnknown()),
			})
		}
		a.Holders = append(a.Holders, h)
	}
	return a, nil
}
