// Package etcdguard is a recipe for etcd: one transaction checks the fence, raises its register and does the work.
package etcdguard

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed74116694/fencelock/fencing"
)

// Do checks f and does the operations in one transaction, and returns their responses. A stale fence is refused with a
// [*fencing.StaleError], and a reader's fence for an operation that writes with [fencing.ErrMissing]. The operations
// leave the registers alone. An error of etcd leaves it open whether the transaction was carried out.
func Do(
	ctx context.Context, kv clientv3.KV, f fencing.Fence, ops ...clientv3.Op,
) ([]*etcdserverpb.ResponseOp, error) {
	if f.Mode == fencing.Write {
		return try(ctx, kv, f, fencing.Registers.Check, []string{written(f), read(f)}, written(f), ops)
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(ops, func(op clientv3.Op) bool { return !op.IsGet() }) {
		return nil, fmt.Errorf("%w for writing: %v", fencing.ErrMissing, f)
	}
	return try(ctx, kv, f, fencing.Registers.Check, []string{written(f)}, read(f), ops)
}

// Derive stores what was derived from a read, such as a rendered page: while nothing newer has been written.
func Derive(ctx context.Context, kv clientv3.KV, f fencing.Fence, key, value string) error {
	_, err := try(ctx, kv, f, fencing.Registers.CheckDerived, []string{written(f)}, "",
		[]clientv3.Op{clientv3.OpPut(key, value)})
	return err
}

// The registers of a resource are keys of their own, with [fencing.Token.Padded] as values: etcd compares bytes.
func written(f fencing.Fence) string { return "fencing/" + f.Resource + "/w" }
func read(f fencing.Fence) string    { return "fencing/" + f.Resource + "/r" }

// try does the operations if no register of bounds is greater than f's token. etcd has "less", and no "less or equal":
// "not greater than t" is "less than t+1".
func try(
	ctx context.Context, kv clientv3.KV, f fencing.Fence, check func(fencing.Registers, fencing.Fence) error,
	bounds []string, raised string, ops []clientv3.Op,
) ([]*etcdserverpb.ResponseOp, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	var notGreater []clientv3.Cmp
	for _, register := range bounds {
		notGreater = append(notGreater, clientv3.Compare(clientv3.Value(register), "<", (f.Token+1).Padded()))
	}
	then := append(raise(raised, f.Token), ops...)
	for {
		resp, err := kv.Txn(ctx).If(notGreater...).Then(then...).
			Else(clientv3.OpGet(written(f)), clientv3.OpGet(read(f))).Commit()
		if err != nil {
			return nil, err
		}
		if resp.Succeeded {
			return resp.Responses[len(then)-len(ops):], nil
		}
		seen, exist, err := registers(resp)
		if err != nil {
			return nil, fmt.Errorf("etcdguard: the registers of %q: %w", f.Resource, err)
		}
		if err := check(seen, f); err != nil || exist {
			return nil, err
		}
		if _, err := kv.Txn(ctx).Then(create(written(f)), create(read(f))).Commit(); err != nil {
			return nil, err
		}
	}
}

// raise puts the token where the register is less: an older reader must not lower it.
func raise(register string, t fencing.Token) []clientv3.Op {
	if register == "" {
		return nil
	}
	less := clientv3.Compare(clientv3.Value(register), "<", t.Padded())
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{less}, []clientv3.Op{clientv3.OpPut(register, t.Padded())}, nil)}
}

// create makes a register that is less than any token, unless it is there: etcd compares no value of a missing key.
func create(register string) clientv3.Op {
	missing := clientv3.Compare(clientv3.CreateRevision(register), "=", 0)
	zero := clientv3.OpPut(register, fencing.Token(0).Padded())
	return clientv3.OpTxn([]clientv3.Cmp{missing}, []clientv3.Op{zero}, nil)
}

// registers reads the answer of the transaction that did not succeed, and reports whether both exist.
func registers(resp *clientv3.TxnResponse) (seen fencing.Registers, exist bool, err error) {
	exist = true
	for i, token := range []*fencing.Token{&seen.MaxWrite, &seen.MaxRead} {
		kvs := resp.Responses[i].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			exist = false
			continue
		}
		value := string(kvs[0].GetValue())
		if *token, err = fencing.ParseToken(value); err != nil {
			return seen, exist, err
		}
		if value != token.Padded() {
			return seen, exist, fmt.Errorf("%w: %q is not padded", fencing.ErrMalformed, value)
		}
	}
	return seen, exist, nil
}
