//! Where clients connect, and what is believed of them.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::tls::ServerTls;

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPlan {
    /// Its address; it cannot change while the process runs.
    pub address: SocketAddr,
    /// The TLS it speaks; in the clear if there is none.
    pub tls: Option<ServerTls>,
    /// Peers whose connections begin with a PROXY protocol header.
    pub proxy_protocol: Networks,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are believed.
    pub trust_forwarded: Networks,
}

/// Ranges of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// These ranges together.
    pub fn new(ranges: Vec<IpNet>) -> Self {
        Self(ranges)
    }

    /// Whether an address is in one of them. An IPv4 address is the same
    /// mapped into IPv6 (RFC 4291, section 2.5.5.2).
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_its_range_however_it_is_written() {
        let networks = Networks::new(["10.0.0.0/8", "::1/128"].map(|range| range.parse().unwrap()).into());
        for (address, is_in) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("11.1.2.3", false), ("::1", true), ("::2", false)]
        {
            assert_eq!(networks.contains(address.parse().unwrap()), is_in, "{address}");
        }
        assert!(!Networks::default().contains([127, 0, 0, 1].into()));
    }
}
