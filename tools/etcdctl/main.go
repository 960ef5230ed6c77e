// Command etcdctl is etcd's own client at the version that mete is tested with.
//
// It is a module of its own for two reasons: "go install" refuses etcdctl's
// module, which has replace directives, and mete must not inherit its
// requirements. "make bin/etcdctl" builds it.
package main

import "go.etcd.io/etcd/etcdctl/v3/ctlv3"

func main() { ctlv3.MustStart() }
