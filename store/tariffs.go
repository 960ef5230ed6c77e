package store

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// recordTariffs stores the tariffs that the store does not have, and removes those that
// were forgotten. Every replica does so; the first one is enough.
func (d *Documents) recordTariffs(ctx context.Context) {
	for _, t := range d.shelf.catalog.TariffsToStore(maxRecords) {
		if err := d.storeTariff(ctx, t); err != nil {
			d.Log.Warn().Err(err).Str("key", TariffsPrefix+t.ID).Msg("what requests cost could not be stored; trying again")
			return
		}
	}
	for _, t := range d.shelf.catalog.TariffsToDrop() {
		if err := d.dropTariff(ctx, t); err != nil {
			d.Log.Warn().Err(err).Str("key", TariffsPrefix+t.ID).Msg("what requests of earlier rules cost could not be removed; it stays")
			return
		}
	}
}

func (d *Documents) storeTariff(ctx context.Context, t plan.StoredTariff) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := TariffsPrefix + t.ID
	answer, err := txn(ctx, d.cluster,
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", string(t.Text))},
		[]clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())}, []clientv3.Op{clientv3.OpPut(key, string(t.Text))})
	if err != nil {
		return err
	}
	revision := answer.Header.Revision
	if answer.Succeeded {
		revision = answer.Responses[0].GetResponseRange().Kvs[0].ModRevision
	}
	d.shelf.catalog.TariffStored(t.ID, revision)
	return nil
}

func (d *Documents) dropTariff(ctx context.Context, t plan.StoredTariff) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := TariffsPrefix + t.ID
	_, err := txn(ctx, d.cluster,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", t.Revision)}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
	return err
}
