package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// memoryKV is as much of an etcd as accounts, the sweep and the board ask for, without a
// network, for bubbles of fake time. It knows get, put and delete of one key, get of
// a range, and transactions, one within another too, that compare revisions.
type memoryKV struct {
	clientv3.KV

	mu       sync.Mutex
	revision int64
	wrote    bool // anything, since the revision was raised
	keys     map[string]*mvccpb.KeyValue
	puts     func(key string) // called with each; may be nil
}

func (m *memoryKV) Do(_ context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision++ // of what is written now, if anything is
	m.wrote = false
	defer func() {
		if !m.wrote {
			m.revision--
		}
	}()
	if !op.IsTxn() {
		r := m.do(op)
		return opResponse(r, m.header())
	}
	r := m.txn(op)
	r.Header = m.header()
	return (*clientv3.TxnResponse)(r).OpResponse(), nil
}

// txn does a transaction, and those that are in it.
func (m *memoryKV) txn(op clientv3.Op) *etcdserverpb.TxnResponse {
	compares, ops, otherwise := op.Txn()
	won := !slices.ContainsFunc(compares, func(cmp clientv3.Cmp) bool { return !m.holds(cmp.GetCompare()) })
	if !won {
		ops = otherwise
	}
	r := &etcdserverpb.TxnResponse{Succeeded: won}
	for _, op := range ops {
		one := &etcdserverpb.ResponseOp{}
		if op.IsTxn() {
			one.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: m.txn(op)}
		} else {
			one.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: m.do(op)}
		}
		r.Responses = append(r.Responses, one)
	}
	return r
}

func (m *memoryKV) holds(c *etcdserverpb.Compare) bool {
	var revision int64
	if kv := m.keys[string(c.Key)]; kv != nil {
		revision = kv.ModRevision
	}
	if c.Target == etcdserverpb.Compare_CREATE {
		return (revision > 0) == (c.Result == etcdserverpb.Compare_GREATER)
	}
	return revision == c.GetModRevision()
}

func opResponse(r *etcdserverpb.RangeResponse, h *etcdserverpb.ResponseHeader) (clientv3.OpResponse, error) {
	r.Header = h
	return (*clientv3.GetResponse)(r).OpResponse(), nil
}

func (m *memoryKV) header() *etcdserverpb.ResponseHeader {
	h := &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: m.revision}
	if !m.wrote {
		h.Revision--
	}
	return h
}

func (m *memoryKV) do(op clientv3.Op) *etcdserverpb.RangeResponse {
	r, key := &etcdserverpb.RangeResponse{}, string(op.KeyBytes())
	m.wrote = m.wrote || !op.IsGet()
	switch {
	case op.IsPut():
		if m.keys == nil {
			m.keys = map[string]*mvccpb.KeyValue{}
		}
		m.keys[key] = &mvccpb.KeyValue{Key: []byte(key), Value: op.ValueBytes(), ModRevision: m.revision}
		if m.puts != nil {
			m.puts(key)
		}
	case op.IsDelete():
		delete(m.keys, key)
	default:
		end := string(op.RangeBytes())
		for k, kv := range m.keys {
			if k == key || k > key && k < end {
				r.Kvs = append(r.Kvs, kv)
			}
		}
		slices.SortFunc(r.Kvs, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	}
	return r
}

// set puts a key past every condition.
func (m *memoryKV) set(key string, value []byte) {
	if _, err := m.Do(context.Background(), clientv3.OpPut(key, string(value))); err != nil {
		panic(fmt.Sprint("memoryKV: ", err))
	}
}
