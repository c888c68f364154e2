//! The header in which a load balancer says whose connection it passes on: the
//! PROXY protocol, version 1 (a line) and 2 (binary), by the specification of
//! HAProxy (`doc/proxy-protocol.txt`).
//!
//! Pure: bytes in, an address out. Who may send it, and how long that may take,
//! is decided where connections are accepted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest line of version 1, its end included (section 2.1).
const MAX_LINE: usize = 107;
/// The longest header of version 2, in bytes. The addresses take 36, or 216 for
/// UNIX sockets; the rest is for what a sender adds, which is skipped.
pub const MAX_LENGTH: usize = 4096;

const SIGNATURE_V1: &[u8] = b"PROXY ";
/// Section 2.2.
const SIGNATURE_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, what it is about, and the length of what follows.
const FIXED_V2: usize = 16;

/// How far the header has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More has to come.
    Incomplete,
    /// It is whole.
    Complete {
        /// How many bytes it takes; the connection's own begin after them.
        length: usize,
        /// The client it names; none if it speaks for nobody but its sender.
        source: Option<SocketAddr>,
    },
}

/// It is no header of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// Neither signature is there.
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    /// Larger than any sender needs.
    #[error("the PROXY protocol header is too long")]
    TooLong,
    /// The line of version 1 is not as it has to be.
    #[error("the PROXY protocol line is malformed")]
    MalformedLine,
    /// A version or command that is not known.
    #[error("the PROXY protocol header has an unknown version or command")]
    UnknownCommand,
    /// A family or a transport that is not known.
    #[error("the PROXY protocol header has an unknown family or transport")]
    UnknownFamily,
    /// No room for the addresses of its family.
    #[error("the PROXY protocol header is too short for its addresses")]
    TooShort,
}

/// Reads the header that a connection begins with. What is
/// [`Incomplete`](Progress::Incomplete) never takes more than [`MAX_LENGTH`]
/// bytes to be something else.
///
/// # Errors
/// It is no header: nothing that may follow makes it one.
pub fn parse(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    if begins(bytes, SIGNATURE_V1) {
        parse_line(bytes)
    } else if begins(bytes, SIGNATURE_V2) {
        parse_binary(bytes)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// Whether the bytes begin with the signature, as far as they go.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    let length = bytes.len().min(signature.len());
    bytes[..length] == signature[..length]
}

/// Section 2.1.
fn parse_line(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let Some(end) = bytes.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if bytes.len() < MAX_LINE { Ok(Progress::Incomplete) } else { Err(ProxyHeaderError::TooLong) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(ProxyHeaderError::MalformedLine)?;
    let line = str::from_utf8(line).map_err(|_| ProxyHeaderError::MalformedLine)?;
    let source = source_of_line(line).ok_or(ProxyHeaderError::MalformedLine)?;
    Ok(Progress::Complete { length: end + 1, source })
}

/// The address that a line names, if it names one; `None` if it is malformed.
fn source_of_line(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ');
    let _signature = words.next()?;
    let source = match words.next()? {
        // Whatever follows is ignored.
        "UNKNOWN" => return Some(None),
        "TCP4" => source_of_words::<Ipv4Addr>(&mut words)?,
        "TCP6" => source_of_words::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(Some(source))
}

fn source_of_words<'a, A: FromStr + Into<IpAddr>>(words: &mut impl Iterator<Item = &'a str>) -> Option<SocketAddr> {
    let source: A = words.next()?.parse().ok()?;
    let _destination: A = words.next()?.parse().ok()?;
    let port = port(words.next()?)?;
    let _destination = self::port(words.next()?)?;
    Some(SocketAddr::new(source.into(), port))
}

/// Decimal, without sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    is_plain.then(|| word.parse().ok()).flatten()
}

/// Section 2.2.
fn parse_binary(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let Some(&[version_and_command, family_and_transport, high, low]) = bytes.get(SIGNATURE_V2.len()..FIXED_V2) else {
        return Ok(Progress::Incomplete);
    };
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderError::UnknownCommand),
    };
    let length = FIXED_V2 + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_LENGTH {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(addresses) = bytes.get(FIXED_V2..length) else {
        return Ok(Progress::Incomplete);
    };
    // A sender that speaks for itself, to see whether we are alive: what it says
    // of addresses is ignored.
    let source = if is_local { None } else { source_of_block(family_and_transport, addresses)? };
    Ok(Progress::Complete { length, source })
}

fn source_of_block(family_and_transport: u8, block: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    const UNIX_ADDRESSES: usize = 216;
    let (family, transport) = (family_and_transport >> 4, family_and_transport & 0xf);
    if transport > 2 {
        return Err(ProxyHeaderError::UnknownFamily);
    }
    match family {
        0 => Ok(None),
        1 => match block {
            &[a, b, c, d, _, _, _, _, high, low, _, _, ..] => {
                Ok(Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]))))
            }
            _ => Err(ProxyHeaderError::TooShort),
        },
        2 => match (block.first_chunk::<16>(), block.get(32..36)) {
            (Some(&source), Some(&[high, low, _, _])) => {
                Ok(Some(SocketAddr::new(Ipv6Addr::from(source).into(), u16::from_be_bytes([high, low]))))
            }
            _ => Err(ProxyHeaderError::TooShort),
        },
        // A path names no address.
        3 if block.len() >= UNIX_ADDRESSES => Ok(None),
        3 => Err(ProxyHeaderError::TooShort),
        _ => Err(ProxyHeaderError::UnknownFamily),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> Option<SocketAddr> {
        match parse(bytes) {
            Ok(Progress::Complete { length, source }) if length == bytes.len() => source,
            other => panic!("{other:?} for {}", bytes.escape_ascii()),
        }
    }

    fn binary(version_and_command: u8, family_and_transport: u8, block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).unwrap().to_be_bytes();
        [SIGNATURE_V2, &[version_and_command, family_and_transport], &length, block].concat()
    }

    fn block(source: SocketAddr) -> (u8, Vec<u8>) {
        let ports = [source.port().to_be_bytes(), [0, 80]].concat();
        match source.ip() {
            IpAddr::V4(ip) => (0x11, [&ip.octets()[..], &[10, 0, 0, 1], &ports].concat()),
            IpAddr::V6(ip) => (0x21, [&ip.octets()[..], &[0; 16], &ports].concat()),
        }
    }

    fn line(source: SocketAddr) -> Vec<u8> {
        let (family, destination) = if source.is_ipv4() { ("TCP4", "10.0.0.1") } else { ("TCP6", "::1") };
        format!("PROXY {family} {} {destination} {} 80\r\n", source.ip(), source.port()).into_bytes()
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_line_names_its_source() {
        for (line, source) in [
            ("PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n", address("192.0.2.7:56324")),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", address("255.255.255.255:65535")),
            ("PROXY TCP6 2001:db8::7 ::1 0 443\r\n", address("[2001:db8::7]:0")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 whatever 1 2 3\r\n", None),
        ] {
            assert_eq!(whole(line.as_bytes()), source, "{line}");
        }
        let longest = "f".repeat(4) + &":ffff".repeat(7);
        let longest = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
        assert_eq!(longest.len(), MAX_LINE);
        assert_eq!(whole(longest.as_bytes()), None);
    }

    #[test]
    fn a_malformed_line_is_none() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\r\n",
            "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
            "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4  2\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(ProxyHeaderError::MalformedLine), "{line}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN \xff\r\n"), Err(ProxyHeaderError::MalformedLine));
    }

    #[test]
    fn a_line_without_end_is_too_long() {
        let mut endless = b"PROXY UNKNOWN ".to_vec();
        endless.resize(MAX_LINE - 1, b'x');
        assert_eq!(parse(&endless), Ok(Progress::Incomplete));
        endless.push(b'x');
        assert_eq!(parse(&endless), Err(ProxyHeaderError::TooLong));
        endless.extend_from_slice(b"\r\n");
        assert_eq!(parse(&endless), Err(ProxyHeaderError::TooLong));
    }

    #[test]
    fn a_binary_header_names_its_source() {
        for source in ["192.0.2.7:56324", "[2001:db8::7]:56324"] {
            let source = source.parse().unwrap();
            let (family, mut block) = block(source);
            assert_eq!(whole(&binary(0x21, family, &block)), Some(source));
            // What a sender adds is skipped; a datagram's address is one as well.
            block.extend_from_slice(&[0x04, 0x00, 0x03, 1, 2, 3]);
            assert_eq!(whole(&binary(0x21, family, &block)), Some(source));
            assert_eq!(whole(&binary(0x21, family + 1, &block)), Some(source));
        }
    }

    #[test]
    fn a_binary_header_that_speaks_for_nobody_names_no_source() {
        let (family, block) = block("192.0.2.7:1".parse().unwrap());
        for header in [
            binary(0x20, 0x00, &[]),
            binary(0x20, family, &block),
            binary(0x20, 0xff, &[1, 2, 3]),
            binary(0x21, 0x00, &[]),
            binary(0x21, 0x00, &block),
            binary(0x21, 0x31, &[b'a'; 216]),
        ] {
            assert_eq!(whole(&header), None, "{}", header.escape_ascii());
        }
    }

    #[test]
    fn a_malformed_binary_header_is_none() {
        let (family, block) = block("192.0.2.7:1".parse().unwrap());
        for (header, error) in [
            (binary(0x11, family, &block), ProxyHeaderError::UnknownCommand),
            (binary(0x22, family, &block), ProxyHeaderError::UnknownCommand),
            (binary(0x21, 0x41, &block), ProxyHeaderError::UnknownFamily),
            (binary(0x21, 0x13, &block), ProxyHeaderError::UnknownFamily),
            (binary(0x21, 0x11, &block[..11]), ProxyHeaderError::TooShort),
            (binary(0x21, 0x21, &[0; 35]), ProxyHeaderError::TooShort),
            (binary(0x21, 0x31, &[0; 215]), ProxyHeaderError::TooShort),
            (binary(0x21, 0x11, &[0; MAX_LENGTH]), ProxyHeaderError::TooLong),
        ] {
            assert_eq!(parse(&header), Err(error), "{}", header[..20].escape_ascii());
        }
        assert!(matches!(parse(&binary(0x21, 0x11, &[0; MAX_LENGTH - FIXED_V2])), Ok(Progress::Complete { .. })));
    }

    #[test]
    fn another_protocol_is_none_from_its_first_byte_on() {
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"POST", b"PRI * HTTP/2.0", b"\x16\x03\x01", b"proxy ", b"\r\n\r\n\r"]
        {
            assert_eq!(parse(other), Err(ProxyHeaderError::Missing), "{}", other.escape_ascii());
        }
        assert_eq!(parse(b""), Ok(Progress::Incomplete));
    }

    fn sources() -> impl Strategy<Value = SocketAddr> {
        let ips = prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
            any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from(bits))),
        ];
        (ips, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    proptest! {
        #[test]
        fn a_header_is_read_however_it_is_split(
            source in sources(),
            as_line in any::<bool>(),
            added in proptest::collection::vec(any::<u8>(), 0..100),
            rest in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = if as_line {
                line(source)
            } else {
                let (family, block) = block(source);
                binary(0x21, family, &[block, added].concat())
            };
            for end in 0..header.len() {
                prop_assert_eq!(parse(&header[..end]), Ok(Progress::Incomplete));
            }
            let complete = Progress::Complete { length: header.len(), source: Some(source) };
            prop_assert_eq!(parse(&[header, rest].concat()), Ok(complete));
        }

        #[test]
        fn what_was_decided_stays_decided(
            signature in prop_oneof![Just(b"PROXY TCP4 ".to_vec()), Just([SIGNATURE_V2, &[0x21, 0x11, 0, 12]].concat()), Just(Vec::new())],
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [signature, bytes].concat();
            let mut decided = None;
            for end in 0..=bytes.len() {
                let now = parse(&bytes[..end]);
                if let Some(before) = decided {
                    prop_assert_eq!(now, before);
                } else if now != Ok(Progress::Incomplete) {
                    decided = Some(now);
                }
                if let Ok(Progress::Complete { length, .. }) = now {
                    prop_assert!(length <= end && length <= MAX_LENGTH);
                }
            }
        }
    }
}
