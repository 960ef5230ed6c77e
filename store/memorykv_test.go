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

// memoryKV is as much of an etcd as the sweep and the board ask for, without a
// network, for bubbles of fake time. It knows get, put and delete of one key, get of
// a range, and transactions that compare revisions.
type memoryKV struct {
	clientv3.KV

	mu       sync.Mutex
	revision int64
	keys     map[string]*mvccpb.KeyValue
	puts     func(key string) // called with each; may be nil
}

func (m *memoryKV) Do(_ context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !op.IsTxn() {
		m.revision += changesOf(op)
		return opResponse(m.do(op), m.header())
	}
	compares, then, otherwise := op.Txn()
	ops, won := then, true
	for _, cmp := range compares {
		c := cmp.GetCompare()
		var revision int64
		if kv := m.keys[string(c.Key)]; kv != nil {
			revision = kv.ModRevision
		}
		if c.Target == etcdserverpb.Compare_CREATE {
			won = won && (revision > 0) == (c.Result == etcdserverpb.Compare_GREATER)
			continue
		}
		won = won && revision == c.GetModRevision()
	}
	if !won {
		ops = otherwise
	}
	m.revision += min(1, changesOf(ops...))
	r := &etcdserverpb.TxnResponse{Succeeded: won, Header: m.header()}
	for _, op := range ops {
		r.Responses = append(r.Responses, &etcdserverpb.ResponseOp{
			Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: m.do(op)},
		})
	}
	return (*clientv3.TxnResponse)(r).OpResponse(), nil
}

func opResponse(r *etcdserverpb.RangeResponse, h *etcdserverpb.ResponseHeader) (clientv3.OpResponse, error) {
	r.Header = h
	return (*clientv3.GetResponse)(r).OpResponse(), nil
}

func (m *memoryKV) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: m.revision}
}

func changesOf(ops ...clientv3.Op) int64 {
	if slices.ContainsFunc(ops, func(op clientv3.Op) bool { return !op.IsGet() }) {
		return 1
	}
	return 0
}

func (m *memoryKV) do(op clientv3.Op) *etcdserverpb.RangeResponse {
	r, key := &etcdserverpb.RangeResponse{}, string(op.KeyBytes())
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
