//! Names and digests of a fixed size, each a type of its own.

/// Declares a newtype over `N` opaque bytes. `hex` ones are shown as
/// hexadecimal digits; `hidden` ones are capabilities and never printed.
macro_rules! opaque_bytes {
    ($(#[$about:meta])* $name:ident, $length:literal, $shown:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $length]);

        impl $name {
            /// Takes the bytes, freshly made or read back from a stored record.
            pub const fn from_bytes(bytes: [u8; $length]) -> Self {
                Self(bytes)
            }

            /// All of the bytes.
            pub const fn as_bytes(&self) -> &[u8; $length] {
                &self.0
            }
        }

        $crate::model::bytes::opaque_bytes!(@$shown $name);
    };
    (@hex $name:ident) => {
        impl $name {
            /// Reads what it is displayed as: hexadecimal digits in lower case.
            pub fn from_hex(digits: &[u8]) -> Option<Self> {
                $crate::model::bytes::read_hex(digits).map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::model::bytes::write_hex(f, &self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
    (@hidden $name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

pub(crate) use opaque_bytes;

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn write_hex(f: &mut std::fmt::Formatter<'_>, bytes: &[u8]) -> std::fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // As large as most that are written, so that those are written at once.
    let mut digits = [0; 32];
    bytes.chunks(digits.len() / 2).try_for_each(|bytes| {
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        let written = digits.get(..2 * bytes.len()).unwrap_or_default();
        f.write_str(std::str::from_utf8(written).unwrap_or_default())
    })
}

/// Reads what [`write_hex`] writes.
pub(crate) fn read_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

/// The first bytes of a digest: enough to name something.
pub(crate) fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    const { assert!(N <= 32) };
    let mut bytes = [0; N];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = *from);
    bytes
}
