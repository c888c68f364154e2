//! A header ends where it says, whatever follows, and nothing makes a header of
//! what is none.

use std::net::SocketAddr;

use onceward::ingress::proxy_protocol::{MAX_LENGTH, Progress, parse};

pub fn holds(data: &[u8]) {
    match parse(data) {
        Ok(Progress::Complete { length, source }) => {
            assert!((1..=data.len().min(MAX_LENGTH)).contains(&length));
            assert_eq!(parse(&data[..length]), parse(data), "what follows does not count");
            for end in 0..length {
                assert_eq!(parse(&data[..end]), Ok(Progress::Incomplete), "no beginning of a header is one");
            }
            if let Some(source) = source {
                is_read_again(source);
            }
        }
        Ok(Progress::Incomplete) => {
            let filled: Vec<_> = data.iter().copied().chain(std::iter::repeat(0)).take(MAX_LENGTH).collect();
            assert_ne!(parse(&filled), Ok(Progress::Incomplete), "it is decided by then");
        }
        Err(error) => {
            for more in [&b"\r\n"[..], b"\0\0\0\0", data] {
                assert_eq!(parse(&[data, more].concat()), Err(error), "it stays none");
            }
        }
    }
}

/// Both versions say the same of an address.
fn is_read_again(source: SocketAddr) {
    let (ip, port) = (source.ip(), source.port());
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let line = format!("PROXY {family} {ip} {ip} {port} {port}\r\n").into_bytes();

    let (kind, address) = match ip {
        std::net::IpAddr::V4(ip) => (0x11, ip.octets().to_vec()),
        std::net::IpAddr::V6(ip) => (0x21, ip.octets().to_vec()),
    };
    let block = [&address[..], &address, &port.to_be_bytes(), &port.to_be_bytes()].concat();
    let length = u16::try_from(block.len()).expect("two addresses").to_be_bytes();
    let binary = [b"\r\n\r\n\0\r\nQUIT\n", &[0x21, kind][..], &length, &block].concat();
    for header in [line, binary] {
        assert_eq!(parse(&header), Ok(Progress::Complete { length: header.len(), source: Some(source) }));
    }
}
