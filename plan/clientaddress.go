package plan

import "net/netip"

// AddressPrefix is how many bits of a client's address name a tenant.
type AddressPrefix struct{ V4, V6 int }

// addressKind begins the names of tenants that are addresses.
const addressKind = "ip:"

// Append appends the tenant of an address: "ip:203.0.113.7", or with fewer bits than it
// has "ip:2001:db8::/64". An IPv4 address that is written as IPv6 is one of IPv4, and a
// zone is left out. It appends nothing where address is none, such as that of a unix
// socket.
func (p AddressPrefix) Append(dst []byte, address string) []byte {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return dst
	}
	addr = addr.Unmap().WithZone("")
	bits := p.V6
	if addr.Is4() {
		bits = p.V4
	}
	net, err := addr.Prefix(bits)
	if err != nil {
		return dst
	}
	dst = append(dst, addressKind...)
	if net.IsSingleIP() {
		return net.Addr().AppendTo(dst)
	}
	return net.AppendTo(dst)
}

// clientAddress reads {v4: 32, v6: 64}.
func (o *object) clientAddress() AddressPrefix {
	p := AddressPrefix{V4: 32, V6: 64}
	for _, f := range []struct {
		name string
		most int64
		to   *int
	}{{"v4", 32, &p.V4}, {"v6", 128, &p.V6}} {
		if n := o.field(f.name); n != nil {
			if bits, ok := o.whole(n, o.at(f.name), 1, f.most); ok {
				*f.to = int(bits)
			}
		}
	}
	o.done()
	return p
}
